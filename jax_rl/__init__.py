"""Reinforcement learning of language models in JAX, measured as time-to-target against batch.

The calls behind the command line, for notebooks and forks: `load_config`, `train`, `run_study`,
`run_bench`, `run_plan`, `build_report`, `sample`, `chat`, `evaluate`, `probe`, `export`. Each is
imported when it is first asked for, so that `import jax_rl` stays free of JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax_rl.bench.measure import run_bench
    from jax_rl.config import Config
    from jax_rl.config_file import load_config
    from jax_rl.errors import UserError
    from jax_rl.evaluation.chat import chat
    from jax_rl.evaluation.evaluate import evaluate
    from jax_rl.evaluation.export import export
    from jax_rl.evaluation.probe import probe
    from jax_rl.evaluation.sample import sample
    from jax_rl.plan.run import run_plan
    from jax_rl.report.build import build_report
    from jax_rl.sweep.run import run_study
    from jax_rl.trainer.run import train
    from jax_rl.trainer.tracing import request_trace

__version__ = "0.1.0"

__all__ = [
    "Config",
    "UserError",
    "__version__",
    "build_report",
    "chat",
    "evaluate",
    "export",
    "load_config",
    "probe",
    "request_trace",
    "run_bench",
    "run_plan",
    "run_study",
    "sample",
    "train",
]

_HOMES = {
    "Config": "jax_rl.config",
    "UserError": "jax_rl.errors",
    "build_report": "jax_rl.report.build",
    "chat": "jax_rl.evaluation.chat",
    "evaluate": "jax_rl.evaluation.evaluate",
    "export": "jax_rl.evaluation.export",
    "load_config": "jax_rl.config_file",
    "probe": "jax_rl.evaluation.probe",
    "run_bench": "jax_rl.bench.measure",
    "run_plan": "jax_rl.plan.run",
    "run_study": "jax_rl.sweep.run",
    "sample": "jax_rl.evaluation.sample",
    "request_trace": "jax_rl.trainer.tracing",
    "train": "jax_rl.trainer.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'jax_rl' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
