"""The commands of `jax-rl` by name."""

from jax_rl.commands.experiment import Report, Study, Trace, Train
from jax_rl.commands.hardware import Bench, Plan
from jax_rl.commands.policy import Eval, Export, Sample

COMMANDS: dict[
    str, type[Train | Study | Bench | Plan | Trace | Report | Sample | Eval | Export]
] = {
    "train": Train,
    "study": Study,
    "bench": Bench,
    "plan": Plan,
    "trace": Trace,
    "report": Report,
    "sample": Sample,
    "eval": Eval,
    "export": Export,
}
