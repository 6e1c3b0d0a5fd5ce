"""The flags of a platform: known to the compilers here, and never against what the user set."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jax_rl.errors import UserError
from jax_rl.hosts import xla_flags

CHECKOUT = Path(__file__).parents[1]
SCHEDULER = "--xla_gpu_enable_latency_hiding_scheduler"
FUSED = "--xla_tpu_enable_async_collective_fusion_fuse_all_reduce"
COMPILE_ONLY = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
START_TPU = (
    "from jax.experimental import topologies as t;"
    "print(len(t.get_topology_desc(platform='tpu', topology_name='v5e:2x2').devices))"
)


def run_python(
    *arguments: str, environ: Mapping[str, str], path: Path = CHECKOUT
) -> subprocess.CompletedProcess[str]:
    """Runs Python with nothing set for JAX but what is given."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not xla_flags.RECORDED.fullmatch(name) and not name.startswith("JAX_")
    }
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(path), **environ},
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
    )


def test_every_setting_says_why_and_by_whom() -> None:
    for platform in ("tpu", "cuda"):
        settings = xla_flags.load_settings(platform)
        assert all(setting.why and setting.source for setting in settings)
        names = [(setting.variable, setting.flag) for setting in settings]
        assert len(set(names)) == len(names)
        assert all(setting.flag.startswith("--xla_") for setting in settings if setting.flag)


def test_flags_of_one_variable_are_joined_in_the_order_of_the_file() -> None:
    values = xla_flags.choose_values("cuda", {})
    assert sorted(values) == ["NCCL_DEBUG", "XLA_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
    assert values["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.9"
    words = values["XLA_FLAGS"].split(" ")
    assert words[0] == f"{SCHEDULER}=true"
    assert len(words) == sum(
        setting.variable == "XLA_FLAGS" for setting in xla_flags.load_settings("cuda")
    )


@pytest.mark.parametrize(
    ("platform", "variable", "present"),
    [
        ("cuda", "XLA_FLAGS", f"{SCHEDULER}=false"),
        ("cuda", "XLA_FLAGS", SCHEDULER),
        ("tpu", "LIBTPU_INIT_ARGS", f"  {FUSED}=false --xla_other=1"),
        ("tpu", "LIBTPU_INIT_ARGS", f"--no{FUSED[2:]}"),
    ],
)
def test_a_flag_that_the_user_names_is_the_users(
    platform: str, variable: str, present: str
) -> None:
    ours = xla_flags.choose_values(platform, {})[variable]
    both = xla_flags.choose_values(platform, {variable: present})[variable]
    flag = SCHEDULER if platform == "cuda" else FUSED
    rest = [word for word in ours.split() if not word.startswith(f"{flag}=")]
    assert len(rest) == len(ours.split()) - 1
    assert both == " ".join([*rest, present.strip()])


def test_a_flag_whose_name_begins_with_ours_is_another() -> None:
    values = xla_flags.choose_values("cuda", {"XLA_FLAGS": f"{SCHEDULER}_extra=1"})
    assert f"{SCHEDULER}=true" in values["XLA_FLAGS"].split()


def test_a_variable_that_the_user_set_is_left_out() -> None:
    present = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5", "XLA_FLAGS": "/home/me/flags.txt"}
    assert xla_flags.choose_values("cuda", present) == {"NCCL_DEBUG": "WARN"}


def test_setting_twice_changes_nothing() -> None:
    once = xla_flags.choose_values("cuda", {"XLA_FLAGS": "--xla_dump_to=d"})
    assert xla_flags.choose_values("cuda", once) == {}


def test_recorded_flags_are_those_that_change_a_program() -> None:
    environ = {
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9",
        "XLA_FLAGS": "--a",
        "NCCL_DEBUG": "WARN",
        "LIBTPU_INIT_ARGS": "",
        "XLA_FLAGS_OLD": "1",
        "MY_NCCL_DEBUG": "1",
        "HOME": "/root",
    }
    recorded = xla_flags.recorded_flags(environ)
    names = ["LIBTPU_INIT_ARGS", "NCCL_DEBUG", "XLA_FLAGS", "XLA_PYTHON_CLIENT_MEM_FRACTION"]
    assert list(recorded) == names
    assert recorded["XLA_FLAGS"] == "--a"


def test_unknown_platform_names_the_known() -> None:
    with pytest.raises(UserError, match=r"'gpu'.*known: cuda, tpu"):
        xla_flags.load_settings("gpu")


def test_a_shell_gets_the_users_quotes_and_spaces_back(tmp_path: Path) -> None:
    poison = tmp_path / "jax"
    poison.mkdir()
    (poison / "__init__.py").write_text("raise SystemExit('JAX was imported')")
    present = "--xla_dump_to='it is; $HOME'"
    module = shlex.join([sys.executable, "-m", "jax_rl.hosts.xla_flags", "cuda"])
    done = subprocess.run(
        ["bash", "-c", f'flags=$({module}) && eval "$flags" && printf %s "$XLA_FLAGS"'],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{CHECKOUT}",
            "XLA_FLAGS": present,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == xla_flags.choose_values("cuda", {"XLA_FLAGS": present})["XLA_FLAGS"]
    assert done.stdout.endswith(f" {present}")


@pytest.mark.parametrize("arguments", [[], ["cpu"], ["tpu", "cuda"]])
def test_wrong_arguments_print_nothing_to_eval(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert xla_flags.main(arguments) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert shown.err.startswith("error: ")


def test_jaxlib_knows_the_cuda_flags_and_aborts_on_others() -> None:
    flags = xla_flags.choose_values("cuda", {})["XLA_FLAGS"]
    start = ("-c", "import jax; print(jax.device_count())")
    known = run_python(*start, environ={"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"})
    assert (known.returncode, known.stdout.strip()) == (0, "1"), known.stderr
    wrong = {"XLA_FLAGS": f"{flags} --xla_gpu_no_such_flag=1", "JAX_PLATFORMS": "cpu"}
    unknown = run_python(*start, environ=wrong)
    assert unknown.returncode != 0
    assert "--xla_gpu_no_such_flag" in unknown.stderr


@pytest.mark.slow
def test_libtpu_knows_the_tpu_flags_and_stops_on_others() -> None:
    pytest.importorskip("libtpu")
    flags = xla_flags.choose_values("tpu", {})["LIBTPU_INIT_ARGS"]
    environ = {**COMPILE_ONLY, "JAX_PLATFORMS": "cpu"}
    known = run_python("-c", START_TPU, environ={**environ, "LIBTPU_INIT_ARGS": flags})
    assert (known.returncode, known.stdout.strip()) == (0, "4"), known.stderr
    wrong = f"{flags} --xla_tpu_no_such_flag=true"
    unknown = run_python("-c", START_TPU, environ={**environ, "LIBTPU_INIT_ARGS": wrong})
    assert unknown.returncode != 0
    assert "xla_tpu_no_such_flag" in unknown.stdout + unknown.stderr
