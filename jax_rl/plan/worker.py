"""A process that compiles for a target: `python -m jax_rl.plan.worker`, a JSON line per job.

It lives apart so that what a compiler does to its process, its environment, its memory and its
crashes, stays out of the caller's.
"""

import dataclasses
import json
import os
import sys
from typing import Any, TextIO

from jax_rl.errors import UserError


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Answers each line of `jobs`, until they end.

    The first line is a target and is answered with its devices; each of the others is a
    configuration and the name of one of its programs, answered as `compile_program` returns it.
    """
    from jax_rl.config_file import config_from_dict
    from jax_rl.plan import lower
    from jax_rl.plan.target import Target
    from jax_rl.plan.topology import open_groups

    target, groups = Target("here"), []
    for line in jobs:
        job = json.loads(line)
        try:
            if "target" in job:
                fields = {**job["target"], "shape": tuple(job["target"]["shape"])}
                target = Target(**fields)
                groups = open_groups(target)
                answer: dict[str, Any] = lower.describe_devices(groups)
                if job.get("measure"):
                    answer["peaks"] = _measure_peaks(groups, job["measure"])
            else:
                config = config_from_dict(job["config"], where="plan")
                specs = lower.specify(config, groups)
                answer = lower.compile_program(
                    specs, job["program"], target, counted=job.get("counted")
                )
        except UserError as error:
            answer = {"refused": str(error)}
        except Exception as error:  # whatever it is, the process goes on and the caller tells
            answer = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)


def _measure_peaks(groups: list[list[Any]], dtype: str) -> dict[str, Any]:
    from jax_rl.plan.peaks import measure_peaks

    devices = [device for group in groups for device in group]
    return dataclasses.asdict(measure_peaks(devices, dtype))


def main() -> None:
    """Serves standard input; what compilers print to standard output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
