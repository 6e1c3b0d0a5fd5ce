"""The commands of `jax-rl` by name."""

from jax_rl.commands.experiment import Report, Study, Trace, Train
from jax_rl.commands.hardware import Bench, Plan
from jax_rl.commands.importing import ImportLog
from jax_rl.commands.policy import Eval, Export, Probe, Sample
from jax_rl.commands.watching import Watch

COMMANDS: dict[
    str,
    type[
        Train
        | Study
        | Bench
        | Plan
        | Trace
        | Watch
        | Report
        | ImportLog
        | Sample
        | Eval
        | Export
        | Probe
    ],
] = {
    "train": Train,
    "study": Study,
    "bench": Bench,
    "plan": Plan,
    "trace": Trace,
    "watch": Watch,
    "report": Report,
    "import-log": ImportLog,
    "sample": Sample,
    "eval": Eval,
    "probe": Probe,
    "export": Export,
}
