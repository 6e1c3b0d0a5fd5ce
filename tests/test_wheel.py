"""The built wheel, installed away from the checkout, is complete: it runs a short job."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = ["build", "--wheel", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)]
    subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a new environment: the wheel, and the dependencies of this environment."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    pip = ["pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([sys.executable, "-m", *pip, str(wheel)], check=True)
    # Only now, so that pip does not take this environment's jax_rl for an older version. Paths
    # added this way have no .pth files of their own read, so the editable checkout stays away.
    (packages,) = home.glob("lib/python*/site-packages")
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "dependencies.pth").write_text("\n".join(sorted(paths)) + "\n")
    return home / "bin"


def run_away(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command with nothing of the checkout in its view."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # One device, as on a laptop; that programs are compiled fast and used once stays.
    flags = os.environ["XLA_FLAGS"].split()
    environment["XLA_FLAGS"] = " ".join(flag for flag in flags if "device_count" not in flag)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_wheel_holds_the_package_and_its_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("sharding", "configs"):
        for file in (CHECKOUT / folder).glob("*.toml"):
            assert f"jax_rl/_data/{folder}/{file.name}" in names
    assert {"jax_rl/cli.py", "jax_rl/py.typed"} <= names
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jax_rl"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_finds_its_own_files_by_name(scripts: Path, tmp_path: Path) -> None:
    code = "from jax_rl import resources as r; print(r.find_layout('fsdp'), r.find_config('tiny'))"
    done = run_away([str(scripts / "python"), "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    for file in done.stdout.split():
        assert Path(file).is_relative_to(scripts.parent)


def test_wheel_trains(scripts: Path, tmp_path: Path) -> None:
    job = ["train", "tiny", "--dir", "run", "--layout", "fsdp"]
    done = run_away([str(scripts / "jax-rl"), *job], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "run").glob("*.jsonl"))


def test_wheel_names_its_layouts_when_one_is_misspelt(scripts: Path, tmp_path: Path) -> None:
    done = run_away([str(scripts / "jax-rl"), "train", "tiny", "--layout", "fsdb"], tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Did you mean 'fsdp'?" in done.stderr
    assert "Traceback" not in done.stderr
