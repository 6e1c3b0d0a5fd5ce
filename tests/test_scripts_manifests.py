"""Shell, YAML and Dockerfiles are clean, and what they say holds together."""

import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from launch_stage import (
    CHECKOUT,
    LAUNCH,
    TOOLS,
    assert_is_a_command_of_ours,
    read_task,
    set_stage,
)

from jax_rl.hosts.xla_flags import choose_values

SHELL = ("_worker.sh", "tpu_pod.sh", "xpk.sh", "slurm.sbatch")
IMAGES = ("tpu", "cuda")


def lint(tool: str, *words: str | Path, text: str | None = None) -> str:
    """What a linter of the `test` extra complains about."""
    path = shutil.which(tool, path=TOOLS)
    assert path, f"no {tool}: pip install -e '.[test]'"
    command = [path, *map(str, words)]
    done = subprocess.run(command, input=text, cwd=CHECKOUT, capture_output=True, text=True)
    return done.stdout + done.stderr if done.returncode else ""


def read_manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((LAUNCH / "gke_jobset.yaml").read_text())
    return manifest


def read_image(name: str) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile: (name, rest of its line)."""
    text = (CHECKOUT / "scripts" / "docker" / f"{name}.Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.M))
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line]
    return [(word, rest) for word, rest in lines]


# Lint


@pytest.mark.parametrize("name", SHELL)
def test_shell_is_clean(name: str) -> None:
    assert lint("shellcheck", "-x", LAUNCH / name) == ""


def test_yaml_is_clean() -> None:
    rules = "{extends: default, rules: {line-length: {max: 100}}}"
    assert lint("yamllint", "--strict", "-d", rules, LAUNCH) == ""


@pytest.mark.parametrize("name", IMAGES)
def test_dockerfile_is_clean(name: str) -> None:
    assert lint("hadolint", CHECKOUT / "scripts" / "docker" / f"{name}.Dockerfile") == ""


@pytest.mark.parametrize("part", ["setup", "run"])
def test_shell_inside_the_task_is_clean(part: str) -> None:
    text = "#!/usr/bin/env bash\n" + read_task()[part]
    # SKYPILOT_* and the files that are sourced are not in the text.
    assert lint("shellcheck", "-e", "SC2154,SC1091", "-", text=text) == ""


@pytest.mark.parametrize("name", ["tpu_pod.sh", "xpk.sh"])
def test_scripts_can_be_called(name: str) -> None:
    assert (LAUNCH / name).stat().st_mode & 0o111 == 0o111


# GKE


def test_jobset_is_one_process_per_host_of_one_slice() -> None:
    manifest = read_manifest()
    assert manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert manifest["kind"] == "JobSet"
    exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert manifest["metadata"]["annotations"] == {exclusive: "cloud.google.com/gke-nodepool"}
    assert manifest["spec"]["failurePolicy"] == {"maxRestarts": 0}
    (job,) = manifest["spec"]["replicatedJobs"]
    assert job["replicas"] == 1
    template = job["template"]["spec"]
    assert template["completionMode"] == "Indexed"
    assert template["backoffLimit"] == 0
    assert template["parallelism"] == template["completions"]
    pod = template["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    chips = container["resources"]["limits"]["google.com/tpu"]
    assert container["resources"]["requests"] == {"google.com/tpu": chips}
    topology = pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    assert math.prod(map(int, topology.split("x"))) == template["parallelism"] * chips
    assert pod["nodeSelector"].keys() == {
        "cloud.google.com/gke-tpu-accelerator",
        "cloud.google.com/gke-tpu-topology",
    }


def test_jobset_mounts_what_its_command_writes_to() -> None:
    pod = read_manifest()["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    assert mount["name"] == volume["name"]
    assert "claimName" in volume["persistentVolumeClaim"]
    words = container["args"]
    assert words[words.index("--dir") + 1].startswith(mount["mountPath"] + "/")
    assert_is_a_command_of_ours(words)
    # The flags are set by the entry point, which `command` would replace.
    assert "command" not in container
    assert container["image"].endswith(":tpu")


def test_jobset_table_of_slices_is_right() -> None:
    text = (LAUNCH / "gke_jobset.yaml").read_text()
    rows = re.findall(r"^#\s+v\w+\s+(\S+)\s+(\d+x\d+)\s+(\d+)\s+(\d+)$", text, flags=re.M)
    assert len(rows) == 4
    for _, topology, hosts, chips in rows:
        assert math.prod(map(int, topology.split("x"))) == int(hosts) * int(chips)
    pod = read_manifest()["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert tuple(pod["nodeSelector"].values()) in {row[:2] for row in rows}


# SkyPilot


def test_task_has_the_fields_of_skypilot() -> None:
    task = read_task()
    fields = {"name", "resources", "num_nodes", "workdir", "envs", "setup", "run"}
    assert task.keys() == fields
    assert task["envs"]["SHARED"] is None  # SkyPilot then asks for it
    assert task["resources"].keys() == {"accelerators"}


# Images


@pytest.mark.parametrize("name", IMAGES)
def test_image_runs_as_a_user_and_copies_what_exists(name: str) -> None:
    instructions = read_image(name)
    assert [rest for word, rest in instructions if word == "USER"] == ["1000"]
    assert instructions[-1] == ("CMD", '["jax-rl", "--help"]')
    assert [rest for word, rest in instructions if word == "FROM"] == [
        "python:3.12-slim AS build",
        "python:3.12-slim",
    ]
    copies = [shlex.split(rest) for word, rest in instructions if word == "COPY"]
    for words in copies:
        if not words[0].startswith("--from"):
            assert all((CHECKOUT / word).exists() for word in words[:-1]), words


@pytest.mark.parametrize("name", IMAGES)
def test_entry_point_sets_the_flags(name: str, tmp_path: Path) -> None:
    stage = set_stage(tmp_path)
    (entry,) = [json.loads(rest) for word, rest in read_image(name) if word == "ENTRYPOINT"]
    done = stage.run([*entry, "jax-rl", "train", "a b"])
    assert done.returncode == 0, done.stderr
    (call,) = stage.calls("jax-rl")
    assert call["words"] == ["train", "a b"]
    assert choose_values(name, {}).items() <= call["environ"].items()


def test_layer_of_dependencies_builds_from_what_it_copies(tmp_path: Path) -> None:
    """Without the code the project still builds, and names the extras of both images."""
    layers = [layer_of_dependencies(name) for name in IMAGES]
    assert layers[0] == layers[1]
    for sources, target in layers[0]:
        (tmp_path / target).mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(CHECKOUT / source, tmp_path / target)
    (tmp_path / "sharding").mkdir()
    (tmp_path / "configs").mkdir()
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as wheel:
        (metadata,) = [item for item in wheel.namelist() if item.endswith("/METADATA")]
        requirements = wheel.read(metadata).decode()
    assert all(f"extra == '{name}'" in requirements for name in IMAGES)


def layer_of_dependencies(name: str) -> list[tuple[list[str], str]]:
    """What an image copies before it installs the requirements: (files, folder)."""
    copied = []
    for word, rest in read_image(name):
        if word == "COPY":
            *sources, target = rest.split()
            copied.append((sources, target))
        if word == "RUN" and "pip install" in rest:
            assert rest == f"mkdir sharding configs && /opt/venv/bin/pip install '.[{name}]'"
            return copied
    raise AssertionError(f"{name}: nothing is installed")
