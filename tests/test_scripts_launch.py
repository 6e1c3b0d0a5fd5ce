"""The launchers run to their end against stand-ins for the commands of a cluster."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from launch_stage import (
    LAUNCH,
    Stage,
    assert_is_a_command_of_ours,
    pretend_installed,
    read_task,
    set_stage,
)

from jax_rl.hosts.xla_flags import choose_values

TPU_FLAGS = choose_values("tpu", {})["LIBTPU_INIT_ARGS"]
CUDA_FLAGS = choose_values("cuda", {})["XLA_FLAGS"]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return set_stage(tmp_path)


@pytest.mark.parametrize("name", ["tpu_pod.sh", "slurm.sbatch", "xpk.sh"])
def test_the_command_of_the_header_is_one_of_ours(name: str) -> None:
    header = (LAUNCH / name).read_text().partition("set -euo")[0]
    commands = re.findall(r"jax-rl train .*", header)
    assert commands
    for command in commands:
        assert_is_a_command_of_ours(command.split())


# TPU VM


@pytest.fixture
def workers(tmp_path: Path) -> list[Path]:
    """Home folders of two workers, with an installed copy of an earlier launch."""
    homes = [tmp_path / "w0", tmp_path / "w1"]
    for home in homes:
        pretend_installed(home / "jax_rl", "[tpu]")
        for file in ("jax_rl/removed_since.py", "runs/earlier/record.jsonl"):
            (home / "jax_rl" / file).parent.mkdir(parents=True)
            (home / "jax_rl" / file).touch()
    return homes


def launch_pod(
    stage: Stage, workers: Sequence[Path], *words: str, fails: int = 0
) -> subprocess.CompletedProcess[str]:
    environ = {"STAGE_WORKERS": ":".join(map(str, workers)), "STAGE_EXIT": str(fails)}
    return stage.run(["scripts/launch/tpu_pod.sh", *words], environ)


def test_pod_copies_installs_and_runs_on_all_workers(stage: Stage, workers: list[Path]) -> None:
    (stage.checkout / "configs" / "new one.toml").write_text("")
    (stage.checkout / "runs").mkdir()
    (stage.checkout / "runs" / "ignored").touch()
    words = ["jax-rl", "train", "it's $HOME", "--dir", "/mnt/shared/first"]
    done = launch_pod(stage, workers, "pod", "us-west4-a", "--project", "mine", "--", *words)
    assert done.returncode == 0, done.stderr
    for call in stage.calls("gcloud"):
        options = shlex.join(call["words"])
        assert "--zone us-west4-a --worker all --project mine" in options
    assert [call["words"][3:5] for call in stage.calls("gcloud")][1:] == [["ssh", "pod"]] * 2
    assert stage.calls("gcloud")[0]["words"][5] == "pod:jax_rl.tar.gz"
    assert [call["words"] for call in stage.calls("jax-rl")] == [words[1:]] * 2
    for call, home in zip(stage.calls("jax-rl"), workers, strict=True):
        assert call["folder"] == str(home / "jax_rl")
        assert call["environ"]["LIBTPU_INIT_ARGS"] == TPU_FLAGS
        assert (home / "jax_rl" / "configs" / "new one.toml").exists()
        assert not (home / "jax_rl" / "jax_rl" / "removed_since.py").exists()
        assert (home / "jax_rl" / "runs" / "earlier" / "record.jsonl").exists()
        assert not (home / "jax_rl" / "runs" / "ignored").exists()


def test_pod_fails_if_a_worker_does(stage: Stage, workers: list[Path]) -> None:
    words = ["pod", "z", "--", "jax-rl", "train", "tiny"]
    assert launch_pod(stage, workers, *words, fails=3).returncode == 3


def test_pod_prints_and_runs_nothing_when_asked(stage: Stage, workers: list[Path]) -> None:
    done = launch_pod(stage, workers, "pod", "z", "--dry-run", "--", "jax-rl", "train", "tiny")
    assert done.returncode == 0, done.stderr
    assert not stage.log.exists()
    assert not (workers[0] / "jax_rl.tar.gz").exists()
    shown = [shlex.split(line[2:].replace("$'", "'")) for line in done.stderr.splitlines()]
    assert [words[:5] for words in shown] == [
        ["gcloud", "compute", "tpus", "tpu-vm", verb] for verb in ("scp", "ssh", "ssh")
    ]
    assert "install_worker tpu" in shown[1][-1]
    assert shown[2][-1].endswith("exec jax-rl train tiny")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pod", "--", "jax-rl"], "NAME and ZONE"),
        (["pod", "z"], "no command"),
        (["pod", "z", "jax-rl", "--", "x"], "third word"),
        (["pod", "z", "--worker", "1", "--", "x"], "unknown option --worker"),
        (["pod", "z", "--project"], "--project needs"),
    ],
)
def test_pod_says_what_is_wrong(stage: Stage, words: list[str], message: str) -> None:
    done = launch_pod(stage, [], *words)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not stage.log.exists()


def test_worker_without_a_new_python_gets_one(stage: Stage, tmp_path: Path) -> None:
    """Cloud TPU images have an older Python: then uv's is taken."""
    uv = tmp_path / "home" / ".local" / "bin" / "uv"
    uv.parent.mkdir(parents=True)
    write_shell(uv, f'[ "$2" = install ] || echo "{sys.executable}"')
    for version in ("", ".11", ".12", ".13"):
        write_shell(stage.bin / f"python3{version}", '[ "$1" = -m ] && echo "$@"')
    write_shell(stage.checkout / "scripts" / "_venv.sh", _VENV_THAT_TELLS, append=True)
    code = "set -euo pipefail; source scripts/launch/_worker.sh; install_worker tpu"
    environ = {"HOME": str(tmp_path / "home"), "JAX_RL_PYTHON": "", "PATH": str(stage.bin)}
    done = stage.run(["/bin/bash", "-c", code], environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "-m pip install --user --quiet uv",
        f"{sys.executable} {stage.checkout}/.venv [tpu]",
    ]


_VENV_THAT_TELLS = 'install_project() { echo "$JAX_RL_PYTHON" "$@"; }'


def write_shell(path: Path, code: str, *, append: bool = False) -> None:
    path.write_text(f"{path.read_text()}\n{code}\n" if append else f"#!/bin/sh\n{code}\n")
    path.chmod(0o755)


# SLURM

ALLOCATION = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_CPUS_ON_NODE": "100",
}


def submit(
    stage: Stage, *words: str, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the batch script as SLURM does: a copy from a folder of its own."""
    spool = stage.log.parent / "spool"
    spool.mkdir()
    script = shutil.copy(stage.checkout / "scripts/launch/slurm.sbatch", spool / "slurm_script")
    settings = {**ALLOCATION, "SLURM_SUBMIT_DIR": str(stage.checkout), **(environ or {})}
    return stage.run(["bash", script, *words], settings)


def options_of(call: dict[str, Any]) -> dict[str, str]:
    words = [word for word in call["words"] if word.startswith("--")]
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def test_slurm_starts_one_process_per_gpu(stage: Stage) -> None:
    pretend_installed(stage.checkout, "[cuda]")
    done = submit(stage, "jax-rl", "train", "a b")
    assert done.returncode == 0, done.stderr
    (step,) = stage.calls("srun")
    assert options_of(step) == {
        "--nodes": "3",
        "--ntasks": "24",
        "--ntasks-per-node": "8",
        "--cpus-per-task": "12",
        "--kill-on-bad-exit": "1",
        "--label": "",
    }
    (call,) = stage.calls("jax-rl")
    assert call["words"] == ["train", "a b"]
    assert call["environ"]["XLA_FLAGS"] == CUDA_FLAGS
    assert call["environ"]["NCCL_DEBUG"] == "WARN"
    assert "JAX_LOCAL_DEVICE_IDS" not in call["environ"]


def test_slurm_starts_one_process_per_node_with_all_its_gpus(stage: Stage) -> None:
    pretend_installed(stage.checkout, "[cuda]")
    done = submit(stage, "jax-rl", "train", environ={"JAX_RL_PROCESS_PER": "node"})
    assert done.returncode == 0, done.stderr
    options = options_of(stage.calls("srun")[0])
    assert (options["--ntasks"], options["--ntasks-per-node"]) == ("3", "1")
    assert options["--cpus-per-task"] == "100"
    (call,) = stage.calls("jax-rl")
    assert call["environ"]["JAX_LOCAL_DEVICE_IDS"] == "0,1,2,3,4,5,6,7"


def test_slurm_keeps_what_the_user_set(stage: Stage, tmp_path: Path) -> None:
    pretend_installed(tmp_path / "elsewhere", "[cuda]")
    environ = {"JAX_RL_VENV": str(tmp_path / "elsewhere/.venv"), "NCCL_DEBUG": "INFO"}
    done = submit(stage, "jax-rl", environ=environ)
    assert done.returncode == 0, done.stderr
    assert stage.calls("jax-rl")[0]["environ"]["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        ([], {}, "no command"),
        (["x"], {"SLURM_JOB_ID": ""}, "not in a SLURM job"),
        (["x"], {"SLURM_GPUS_ON_NODE": ""}, "no GPUs"),
        (["x"], {}, "no {checkout}/.venv/bin/jax-rl"),
        (["x"], {"SLURM_SUBMIT_DIR": "/"}, "not a checkout"),
        (["x"], {"JAX_RL_VENV": "{bin}/..", "JAX_RL_PROCESS_PER": "core"}, "is 'core'"),
    ],
)
def test_slurm_says_what_is_wrong(
    stage: Stage, words: list[str], environ: dict[str, str], message: str
) -> None:
    places = {"checkout": stage.checkout, "bin": stage.bin}
    settings = {name: value.format(**places) for name, value in environ.items()}
    done = submit(stage, *words, environ=settings)
    assert done.returncode == 2
    assert message.format(**places) in done.stderr
    assert not stage.calls("srun")


def test_slurm_asks_for_whole_nodes_and_leaves_gpus_visible() -> None:
    text = (LAUNCH / "slurm.sbatch").read_text()
    header, _, body = text.partition("set -euo pipefail")
    options = re.findall(r"^#SBATCH --([a-z-]+)", header, flags=re.M)
    assert {"nodes", "exclusive", "gres", "mem", "time"} <= set(options)
    assert "#SBATCH" not in body
    assert "gpus-per-task=" not in text
    # SLURM reads options up to the first command.
    assert all(line.startswith("#") for line in header.splitlines() if line)


# xpk


def test_xpk_gets_one_line(stage: Stage) -> None:
    words = ["pods", "first", "v5litepod-16", "r/jax-rl:tpu", "--slices", "2", "--zone=z"]
    done = stage.run(["scripts/launch/xpk.sh", *words, "--", "jax-rl", "train", "it's"])
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls("xpk")
    assert call["words"][:-1] == shlex.split(
        "workload create --cluster pods --workload first --tpu-type v5litepod-16 --num-slices 2"
        " --docker-image r/jax-rl:tpu --zone=z --command"
    )
    run = stage.run(["bash", "-c", call["words"][-1]])
    assert run.returncode == 0, run.stderr
    (started,) = stage.calls("jax-rl")
    assert started["words"] == ["train", "it's"]
    assert started["environ"]["LIBTPU_INIT_ARGS"] == TPU_FLAGS


def test_xpk_line_is_only_shown_when_asked(stage: Stage) -> None:
    words = ["c", "w", "v6e-16", "i", "--dry-run", "--", "jax-rl"]
    done = stage.run(["scripts/launch/xpk.sh", *words])
    assert done.returncode == 0, done.stderr
    assert not stage.log.exists()
    assert done.stderr.startswith("+ xpk workload create --cluster c --workload w ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["c", "w", "t", "--", "x"], "CLUSTER, WORKLOAD"),
        (["c", "w", "t", "i"], "no command"),
        (["c", "w", "t", "i", "--slices", "0", "--", "x"], "--slices is a number"),
        (["c", "w", "t", "i", "--zone", "z", "--", "x"], "as --name=value: --zone"),
    ],
)
def test_xpk_says_what_is_wrong(stage: Stage, words: list[str], message: str) -> None:
    done = stage.run(["scripts/launch/xpk.sh", *words])
    assert done.returncode == 2
    assert message in done.stderr
    assert not stage.log.exists()


# SkyPilot


def run_task(stage: Stage, part: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    task = read_task()
    given = {name: value for name, value in task["envs"].items() if value is not None}
    nodes = {
        "SKYPILOT_NODE_IPS": "10.0.0.4\n10.0.0.5",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_RANK": "1",
    }
    return stage.run(["bash", "-c", task[part]], {**given, **nodes, **environ})


def test_task_tells_gpu_nodes_of_each_other(stage: Stage, tmp_path: Path) -> None:
    pretend_installed(stage.checkout, "[cuda]")
    assert run_task(stage, "setup", {}).returncode == 0
    done = run_task(stage, "run", {"SHARED": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls("jax-rl")
    assert_is_a_command_of_ours(["jax-rl", *call["words"]])
    assert call["words"][-2:] == ["--dir", f"{tmp_path}/runs/first"]
    told = {name: value for name, value in call["environ"].items() if name.startswith("JAX_")}
    del told["JAX_RL_PYTHON"]
    assert told == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.4:8476",
        "JAX_NUM_PROCESSES": "2",
        "JAX_PROCESS_ID": "1",
    }
    assert call["environ"]["XLA_FLAGS"] == CUDA_FLAGS


def test_task_leaves_hosts_of_a_slice_to_jax(stage: Stage, tmp_path: Path) -> None:
    pretend_installed(stage.checkout, "[tpu]")
    assert run_task(stage, "setup", {"PLATFORM": "tpu"}).returncode == 0
    done = run_task(stage, "run", {"SHARED": str(tmp_path), "PLATFORM": "tpu"})
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls("jax-rl")
    assert "JAX_COORDINATOR_ADDRESS" not in call["environ"]
    assert call["environ"]["LIBTPU_INIT_ARGS"] == TPU_FLAGS


def test_task_wants_the_shared_folder_on_every_node(stage: Stage) -> None:
    done = run_task(stage, "run", {"SHARED": "/no/such/folder"})
    assert done.returncode == 2
    assert "SHARED=/no/such/folder is not a directory" in done.stderr
    assert not stage.log.exists()
