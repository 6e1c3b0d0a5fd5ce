"""Whether the environment says that this is one of several processes, and who else there is.

`jax.distributed.initialize` finds this out as well, but only once it has been called; and it may
not be called on a laptop, in the shell of an allocation or on a single TPU host.
"""

import dataclasses
import functools
import glob
import importlib.util
import os
import re
import urllib.request
from collections.abc import Callable, Mapping

from jax_rl.errors import UserError

_METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/"
_METADATA_SECONDS = 3.0
_RIGHT = "right is all three, as in JAX_COORDINATOR_ADDRESS=host:1234 JAX_NUM_PROCESSES=4"
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
_OPEN_MPI = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")


@dataclasses.dataclass(frozen=True)
class Program:
    """Several processes that are one program."""

    coordinator: str = ""
    """host:port of process 0; empty if JAX finds the processes itself."""
    processes: int = 0
    process: int = -1
    local_devices: tuple[int, ...] | None = None
    """GPUs of this process, counted among those visible to it; all if empty, JAX's choice if
    None."""


def find_program(
    environ: Mapping[str, str],
    *,
    on_tpu: Callable[[], bool] | None = None,
    ask_metadata: Callable[[str], str] | None = None,
) -> Program | None:
    """The program that this process belongs to, in the order in which JAX looks.

    Args:
      environ: environment variables.
      on_tpu: tells whether this machine has TPU chips and the library for them.
      ask_metadata: gives an attribute from the metadata server of a TPU VM; empty if there is none.

    Returns:
      None if this process is alone.

    Raises:
      UserError: variables that contradict each other, or that name several processes without
        saying how to reach them.
    """
    found = _find_explicit(environ)
    if found is not None:
        return found if found.processes > 1 else None
    address = environ.get("JAX_COORDINATOR_ADDRESS", "")
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return _find_open_mpi(environ, address)
    if _is_slurm_step(environ):
        return Program(local_devices=choose_local_devices(environ))
    if (on_tpu or has_tpu)() and "tpu" in environ.get("JAX_PLATFORMS", "tpu"):
        return Program() if _count_tpu_hosts(environ, ask_metadata or _ask_metadata) > 1 else None
    if "KUBERNETES_SERVICE_HOST" in environ and "JOB_COMPLETION_INDEX" in environ:
        return _find_kubernetes()
    if address:
        raise UserError(
            "JAX_COORDINATOR_ADDRESS is set, JAX_NUM_PROCESSES and JAX_PROCESS_ID are not; "
            + _RIGHT
            + " JAX_PROCESS_ID=0"
        )
    return None


def choose_local_devices(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """GPUs of this process where SLURM or Open MPI may have started several on the machine.

    JAX would take the GPU whose number is that of the process on its machine, which is wrong for
    one process per machine, and where the launcher shows each process its own GPUs only.

    Returns:
      numbers among the visible GPUs; empty for all of them, None if JAX's own choice is right.
    """
    here = _find_local(environ)
    if here is None or "JAX_LOCAL_DEVICE_IDS" in environ:
        return None
    rank, tasks = here
    if tasks == 1:
        return ()
    visible = len([name for name in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name])
    present = int(environ.get("SLURM_GPUS_ON_NODE") or tasks)
    if not visible:
        return None
    if visible < present:
        return ()  # these are its own
    share = max(1, visible // tasks)
    return tuple(range(rank * share, (rank + 1) * share))


@functools.cache
def has_tpu() -> bool:
    """Whether this machine has TPU chips and the library for them."""
    if not glob.glob("/dev/accel[0-9]*") and not glob.glob("/dev/vfio/[0-9]*"):
        return False
    return "TPU_LIBRARY_PATH" in os.environ or importlib.util.find_spec("libtpu") is not None


def _find_explicit(environ: Mapping[str, str]) -> Program | None:
    names = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    given = [name for name in names if environ.get(name)]
    if not given:
        return None
    missing = [n for n in ("JAX_COORDINATOR_ADDRESS", *names) if not environ.get(n)]
    if missing:
        raise UserError(
            f"{' and '.join(given)} set without {' and '.join(missing)}; {_RIGHT} JAX_PROCESS_ID=0"
        )
    numbers = [_read_number(environ, name) for name in names]
    return check_program(
        environ["JAX_COORDINATOR_ADDRESS"],
        *numbers,
        where=("JAX_COORDINATOR_ADDRESS", *names),
        environ=environ,
    )


def check_program(
    coordinator: str,
    processes: int,
    process: int,
    *,
    where: tuple[str, str, str],
    environ: Mapping[str, str],
) -> Program:
    """Looks at three values that were given.

    Args:
      coordinator: host:port of process 0.
      processes: number of processes.
      process: number of this one, from 0.
      where: what the three are called where they were given.
      environ: environment variables, for the GPUs of this process.

    Raises:
      UserError: one of them cannot be.
    """
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise UserError(f"{where[0]} is {coordinator!r}; right is host:port, as in 10.0.0.1:1234")
    if processes < 1:
        raise UserError(f"{where[1]} is {processes}; right is 1 or more")
    if not 0 <= process < processes:
        raise UserError(
            f"{where[2]} is {process}; with {where[1]} {processes}, right is 0 to {processes - 1}"
        )
    return Program(coordinator, processes, process, choose_local_devices(environ))


def _find_open_mpi(environ: Mapping[str, str], address: str) -> Program | None:
    size, rank, _ = (_read_number(environ, name) for name in _OPEN_MPI)
    if size == 1:
        return None
    devices = choose_local_devices(environ)
    if "OMPI_MCA_orte_hnp_uri" in environ:
        return Program(local_devices=devices)
    if address:
        return Program(address, size, rank, devices)
    raise UserError(
        f"Open MPI has started {size} processes, but this version of it does not say where the"
        " first one is; set JAX_COORDINATOR_ADDRESS=host:port, host being that of rank 0"
    )


def _is_slurm_step(environ: Mapping[str, str]) -> bool:
    """Not in the shell of an allocation, which has the job's number of tasks but is none."""
    if any(name not in environ for name in _SLURM):
        return False
    tasks = _read_number(environ, "SLURM_NTASKS")
    here = environ.get("SLURM_STEP_NUM_TASKS") or str(tasks)
    return tasks > 1 and here != "1"


def _count_tpu_hosts(environ: Mapping[str, str], ask_metadata: Callable[[str], str]) -> int:
    names = environ.get("TPU_PROCESS_ADDRESSES") or environ.get("TPU_WORKER_HOSTNAMES") or ""
    slices = environ.get("MEGASCALE_NUM_SLICES") or ""
    if not names and "TPU_SKIP_MDS_QUERY" not in environ:
        names = ask_metadata("worker-network-endpoints")
        found = re.search(r"MEGASCALE_NUM_SLICES\s*:\s*'?(\d+)", ask_metadata("tpu-env"))
        slices = slices or (found.group(1) if found else "")
    hosts = len([name for name in names.split(",") if name.strip()])
    return max(1, hosts) * (int(slices) if slices.isdecimal() else 1)


def _find_kubernetes() -> Program:
    """Only the cluster knows how many pods the job has, and JAX asks it through a package."""
    if importlib.util.find_spec("kubernetes") is None:
        raise UserError(
            "this is a pod of an indexed Kubernetes Job, and JAX needs the package `kubernetes` to"
            " find the others: pip install 'jax[k8s]'; or set JAX_COORDINATOR_ADDRESS,"
            " JAX_NUM_PROCESSES and JAX_PROCESS_ID (for one pod alone: localhost:1234, 1 and 0)"
        )
    return Program()


def _find_local(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Number of this process on its machine, and how many there are on it."""
    if "OMPI_COMM_WORLD_LOCAL_SIZE" in environ:
        names = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
        return _read_number(environ, names[0]), _read_number(environ, names[1])
    per_node = _expand_counts(environ.get("SLURM_STEP_TASKS_PER_NODE", ""))
    node, local = environ.get("SLURM_NODEID", ""), environ.get("SLURM_LOCALID", "")
    if not (node.isdecimal() and local.isdecimal()) or int(node) >= len(per_node):
        return None
    return int(local), per_node[int(node)]


def _expand_counts(text: str) -> list[int]:
    """'4(x2),3' is 4, 4, 3."""
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def _read_number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text.isdecimal():
        raise UserError(f"the environment variable {name} is {text!r}; right is a whole number")
    return int(text)


def _ask_metadata(attribute: str) -> str:
    request = urllib.request.Request(_METADATA + attribute, headers={"Metadata-Flavor": "Google"})
    try:
        with urllib.request.urlopen(request, timeout=_METADATA_SECONDS) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""
