"""A stage for launchers: a small checkout, and stand-ins for the commands of a cluster."""

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from jax_rl.cli import parse

CHECKOUT = Path(__file__).parents[1]
LAUNCH = CHECKOUT / "scripts" / "launch"
TOOLS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".gitignore",
    "scripts",
    "configs",
    "sharding",
    "jax_rl/__init__.py",
    "jax_rl/errors.py",
    "jax_rl/hosts/__init__.py",
    "jax_rl/hosts/xla_flags.py",
    "jax_rl/hosts/xla_flags.toml",
)
"""What launchers touch of a checkout."""

RECORD = """
import json, os, sys
seen = ("JAX_", "XLA_", "LIBTPU_", "NCCL_", "SLURM_PROCID", "HOME")
environ = {name: value for name, value in os.environ.items() if name.startswith(seen)}
call = {"name": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "environ": environ}
with open(os.environ["STAGE_LOG"], "a") as log:
    log.write(json.dumps({**call, "folder": os.getcwd()}) + "\\n")
"""

GCLOUD = """
import shutil, subprocess
words, workers = sys.argv[1:], os.environ["STAGE_WORKERS"].split(":")
assert words[:3] == ["compute", "tpus", "tpu-vm"], words
codes = []
for worker in workers:
    if words[3] == "scp":
        shutil.copy(words[4], os.path.join(worker, words[5].partition(":")[2]))
    else:
        command = words[words.index("--command") + 1]
        environ = {**os.environ, "HOME": worker}
        codes.append(subprocess.run(["bash", "-c", command], cwd=worker, env=environ).returncode)
sys.exit(max(codes, default=0))
"""

SRUN = """
first = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("--"))
os.environ["SLURM_PROCID"] = "0"
os.execvp(sys.argv[first], sys.argv[first:])
"""

JAX_RL = """
sys.exit(int(os.environ.get("STAGE_EXIT", "0")))
"""


@dataclasses.dataclass(frozen=True)
class Stage:
    """Folders of one test: `checkout` to launch from, `bin` with the stand-ins, `log` of calls."""

    checkout: Path
    bin: Path
    log: Path

    def run(
        self, command: Sequence[str | Path], environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in the checkout, with the stand-ins first on PATH."""
        base = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.checkout.parent),
            "JAX_RL_PYTHON": sys.executable,
            "STAGE_LOG": str(self.log),
        }
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.checkout,
            env={**base, **(environ or {})},
            capture_output=True,
            text=True,
        )

    def calls(self, name: str) -> list[dict[str, Any]]:
        """What a stand-in was called with, in order."""
        if not self.log.exists():
            return []
        rows = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [row for row in rows if row["name"] == name]


def set_stage(folder: Path) -> Stage:
    """Makes the checkout as a git repository without commits, and the stand-ins."""
    checkout, commands = folder / "checkout", folder / "bin"
    for part in PARTS:
        target = checkout / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / part).is_dir():
            shutil.copytree(CHECKOUT / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / part, target)
    subprocess.run(["git", "init", "--quiet", str(checkout)], check=True)
    commands.mkdir()
    for name, then in (("gcloud", GCLOUD), ("srun", SRUN), ("xpk", ""), ("jax-rl", JAX_RL)):
        _write_command(commands / name, RECORD + then)
    _write_python(commands / "python")
    return Stage(checkout, commands, folder / "calls.jsonl")


def pretend_installed(home: Path, extras: str) -> None:
    """A virtual environment under `home` that scripts/_venv.sh takes for an installed one."""
    commands = home / ".venv" / "bin"
    commands.mkdir(parents=True)
    _write_command(commands / "jax-rl", RECORD + JAX_RL)
    _write_python(commands / "python")
    digest = hashlib.sha256((CHECKOUT / "pyproject.toml").read_bytes()).hexdigest()
    stamp = f"{platform.python_version()} {extras} {digest}\n"
    (home / ".venv" / ".jax-rl-installed").write_text(stamp)


def _write_command(path: Path, code: str) -> None:
    path.write_text(f"#!{sys.executable} -SE\n{code}")
    path.chmod(0o755)


def _write_python(path: Path) -> None:
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)


def read_task() -> dict[str, Any]:
    """The task of SkyPilot."""
    task: dict[str, Any] = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())
    return task


def assert_is_a_command_of_ours(words: Sequence[str]) -> None:
    """Configuration, options and their values are those of the command line."""
    assert words[0] == "jax-rl"
    assert parse(list(words[1:])) is not None
