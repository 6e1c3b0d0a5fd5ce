"""Whether to join other processes, decided from the environment; and what happens if none come."""

import subprocess
import sys
from pathlib import Path

import pytest
from host_processes import ROOT, free_port

from jax_rl.errors import UserError
from jax_rl.hosts import connect as module
from jax_rl.hosts.connect import connect
from jax_rl.hosts.detect import Program, choose_local_devices, find_program

SCRIPT = Path(ROOT, "scripts/local_cluster.sh")
SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
}
MPI = {
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1:34911",
}
EXPLICIT = {
    "JAX_COORDINATOR_ADDRESS": "10.0.0.1:1234",
    "JAX_NUM_PROCESSES": "4",
    "JAX_PROCESS_ID": "3",
}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}


def find(environ, *, tpu=False, metadata=None):
    def ask(attribute):
        assert metadata is not None, "the metadata server must not be asked"
        return metadata.get(attribute, "")

    return find_program(environ, on_tpu=lambda: tpu, ask_metadata=ask)


@pytest.mark.parametrize(
    ("environ", "tpu", "metadata"),
    [
        ({}, False, None),
        (EXPLICIT | {"JAX_NUM_PROCESSES": "1", "JAX_PROCESS_ID": "0"}, False, None),
        # The shell of `sbatch` or `salloc`: the job's tasks, and no step, or one of one task.
        ({k: v for k, v in SLURM.items() if k != "SLURM_STEP_NODELIST"}, False, None),
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, False, None),
        (SLURM | {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": "1"}, False, None),
        (MPI | {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}, False, None),
        ({}, True, {}),
        ({}, True, {"worker-network-endpoints": "10.0.0.2", "tpu-env": "ZONE: 'a'"}),
        ({"TPU_WORKER_HOSTNAMES": "localhost"} | POD, True, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, False, None),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_PROCESS_ADDRESSES": "local"}, True, None),
        ({"TPU_SKIP_MDS_QUERY": "1"}, True, None),
        ({"JAX_PLATFORMS": "cpu"}, True, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, None),
    ],
)
def test_alone(environ, tpu, metadata):
    assert find(environ, tpu=tpu, metadata=metadata) is None


@pytest.mark.parametrize(
    ("environ", "metadata"),
    [
        ({"TPU_WORKER_HOSTNAMES": "a,b"}, None),
        ({"TPU_WORKER_HOSTNAMES": "a", "MEGASCALE_NUM_SLICES": "2"}, None),
        ({}, {"worker-network-endpoints": "x:1:10.0.0.2,y:2:10.0.0.3"}),
        ({}, {"worker-network-endpoints": "a", "tpu-env": "A: 'b'\nMEGASCALE_NUM_SLICES: '2'\n"}),
    ],
)
def test_several_tpu_hosts_are_left_to_jax(environ, metadata):
    assert find(environ, tpu=True, metadata=metadata) == Program()


def test_slurm_step_and_open_mpi_are_left_to_jax():
    assert find(SLURM) == Program()
    assert find({k: v for k, v in SLURM.items() if k != "SLURM_STEP_NUM_TASKS"}) == Program()
    assert find(MPI) == Program()


def test_variables_of_jax_win_and_fill_in_for_open_mpi():
    assert find(SLURM | EXPLICIT) == Program("10.0.0.1:1234", 4, 3)
    newer = {k: v for k, v in MPI.items() if k != "OMPI_MCA_orte_hnp_uri"}
    with pytest.raises(UserError, match=r"Open MPI has started 2 processes.*JAX_COORDINATOR_ADDR"):
        find(newer)
    assert find(newer | {"JAX_COORDINATOR_ADDRESS": "a:1"}) == Program("a:1", 2, 1)


@pytest.mark.parametrize(
    ("change", "devices"),
    [
        ({}, None),  # no GPUs
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "4"}, (1,)),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "SLURM_GPUS_ON_NODE": "8"}, (2, 3)),
        # Each task is shown its own.
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "4"}, ()),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_GPUS_ON_NODE": "16"}, ()),
        # One task per node takes them all.
        ({"SLURM_STEP_TASKS_PER_NODE": "7,1", "CUDA_VISIBLE_DEVICES": "0,1"}, ()),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "JAX_LOCAL_DEVICE_IDS": "0"}, None),
    ],
)
def test_gpus_of_a_slurm_task(change, devices):
    assert choose_local_devices(SLURM | change) == devices
    assert find(SLURM | change) == Program(local_devices=devices)


def test_one_open_mpi_process_per_host_takes_all_gpus():
    assert choose_local_devices(MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}) == ()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"JAX_NUM_PROCESSES": "4"}, "set without JAX_COORDINATOR_ADDRESS and JAX_PROCESS_ID"),
        ({"JAX_COORDINATOR_ADDRESS": "a:1"}, "JAX_NUM_PROCESSES and JAX_PROCESS_ID are not"),
        (EXPLICIT | {"JAX_COORDINATOR_ADDRESS": "a"}, "right is host:port"),
        (EXPLICIT | {"JAX_PROCESS_ID": "4"}, "right is 0 to 3"),
        (EXPLICIT | {"JAX_PROCESS_ID": "x"}, "JAX_PROCESS_ID is 'x'"),
        (SLURM | {"SLURM_NTASKS": "8(x2)"}, "SLURM_NTASKS"),
    ],
)
def test_contradictions_are_refused(environ, message):
    with pytest.raises(UserError, match=message):
        find(environ)


def test_a_pod_needs_the_package_of_kubernetes(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'jax\[k8s\]'"):
        find(POD)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert find(POD) == Program()


@pytest.fixture
def calls(monkeypatch):
    """What JAX was called with."""
    seen = []
    monkeypatch.setattr("jax.distributed.initialize", lambda **arguments: seen.append(arguments))
    monkeypatch.setattr("jax.config.update", lambda name, value: seen.append({name: value}))
    for name in (*SLURM, *MPI, *EXPLICIT):
        monkeypatch.delenv(name, raising=False)
    return seen


def test_flags_reach_jax(calls):
    assert connect(coordinator="h:5", processes=2, process=1)
    gloo, arguments = calls
    assert gloo == {"jax_cpu_collectives_implementation": "gloo"}
    assert arguments["coordinator_address"] == "h:5"
    assert (arguments["num_processes"], arguments["process_id"]) == (2, 1)


def test_nothing_is_done_alone(calls):
    assert not connect()
    assert not connect(coordinator="h:5", processes=1, process=0)
    assert calls == []


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"coordinator": "h:5"}, "--processes and --process missing"),
        ({"processes": 2, "process": 0}, "--coordinator missing"),
        ({"coordinator": "h:5", "processes": 2, "process": 2}, "--process is 2.*right is 0 to 1"),
        ({"coordinator": "h:5", "processes": -2, "process": 0}, "--processes is -2"),
        ({"coordinator": "h:five", "processes": 2, "process": 0}, "--coordinator is 'h:five'"),
    ],
)
def test_wrong_flags(calls, flags, message):
    with pytest.raises(UserError, match=message):
        connect(**flags)
    assert calls == []


def test_an_error_of_jax_is_the_users(calls, monkeypatch):
    def refuse(**arguments):
        raise RuntimeError("port taken")

    monkeypatch.setattr("jax.distributed.initialize", refuse)
    with pytest.raises(UserError, match="cannot be joined: port taken"):
        module.connect(coordinator="h:5", processes=2, process=0)


@pytest.mark.parametrize(
    ("process", "message"),
    [(0, "process 0 waits for 1 more at 127.0.0.1"), (1, "cannot be reached (Connection refused)")],
)
@pytest.mark.slow
def test_nobody_comes(process, message):
    script = f"""
import sys
from jax_rl.errors import UserError
from jax_rl.hosts.connect import connect
try:
    connect(coordinator="127.0.0.1:{free_port()}", processes=2, process={process}, seconds=1)
except UserError as error:
    print(f"error: {{error}}", file=sys.stderr)
    sys.exit(3)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert message in done.stderr and "Traceback" not in done.stderr
    assert done.returncode == 2 and "stack trace" not in done.stderr


def run_cluster(*arguments, seconds=60):
    return subprocess.run(
        [SCRIPT, *arguments], capture_output=True, text=True, timeout=seconds, cwd=ROOT
    )


def test_local_cluster_starts_processes_that_find_each_other():
    script = (
        "from jax_rl.hosts.connect import connect; assert connect(); import jax;"
        "print(jax.process_index(), jax.device_count(), len(jax.local_devices()), flush=True)"
    )
    done = run_cluster("2", "--devices", "3", sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "6 3" in line]
    assert sorted(lines) == ["[0] 0 6 3", "[1] 1 6 3"]


@pytest.mark.slow
def test_local_cluster_returns_the_first_failure_and_ends_the_others():
    done = run_cluster(
        "3", "bash", "-c", "if ((JAX_PROCESS_ID == 1)); then exit 7; fi; sleep 1000", seconds=40
    )
    assert done.returncode == 7
    assert "process 1 failed with exit code 7" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "number of processes is missing"),
        (["two", "true"], "is 'two'"),
        (["0", "true"], "is '0'"),
        (["2"], "command is missing"),
        (["2", "--devices"], "--devices is ''"),
        (["2", "--devices=x", "true"], "--devices is 'x'"),
        (["2", "--device", "3", "true"], "unknown option --device"),
        (["2", "no-such-command"], "is not found"),
    ],
)
def test_local_cluster_refuses(arguments, message):
    done = run_cluster(*arguments)
    assert done.returncode == 2 and message in done.stderr and done.stdout == ""
