"""Several processes, on one host or many, become one program of plain multi-controller JAX."""

import os
import socket
import threading
from typing import Any

import jax

from jax_rl.errors import UserError
from jax_rl.hosts.detect import Program, check_program, find_program
from jax_rl.hosts.ending import skip_shutdown

_HEARTBEAT_SECONDS = 60
"""Later than the channel calls a host gone, whose message is the better one."""
_NEVER = 24 * 3600  # JAX aborts at its own time limit, so ours comes first
_FLAGS = ("--coordinator", "--processes", "--process")


def connect(
    *, coordinator: str = "", processes: int = 0, process: int = -1, seconds: float = 120.0
) -> bool:
    """Joins the processes of one program; call it before anything asks JAX for devices.

    Without arguments the environment decides: JAX_COORDINATOR_ADDRESS with JAX_NUM_PROCESSES and
    JAX_PROCESS_ID, a step of SLURM, Open MPI, a TPU slice of several hosts, a Kubernetes Job.

    Args:
      coordinator: host:port of process 0, which listens there.
      processes: how many there are.
      process: which one this is, from 0.
      seconds: how long to wait for the others.

    Returns:
      whether there are several. If not, nothing was done.

    Raises:
      UserError: arguments or variables that cannot be, or processes that do not find each other.
    """
    if jax.distributed.is_initialized():
        return jax.process_count() > 1
    program = _choose(coordinator, processes, process)
    if program is None:
        return False
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    _initialize(program, seconds)
    return program.processes > 1 or jax.process_count() > 1


def find_coordinator() -> tuple[str, ...]:
    """The host that JAX itself has reached process 0 at, if it tells."""
    try:
        from jax._src import distributed

        address = distributed.global_state.coordinator_address
    except (ImportError, AttributeError):
        return ()
    return (_split(address)[0],) if address else ()


def _choose(coordinator: str, processes: int, process: int) -> Program | None:
    given = (bool(coordinator), processes != 0, process != -1)
    if not any(given):
        return find_program(os.environ)
    if not all(given):
        missing = [flag for flag, there in zip(_FLAGS, given, strict=True) if not there]
        raise UserError(
            f"{' and '.join(missing)} missing; right is all three, as in --coordinator"
            " 10.0.0.1:1234 --processes 4 --process 0, or none"
        )
    program = check_program(coordinator, processes, process, where=_FLAGS, environ=os.environ)
    return program if processes > 1 else None


def _initialize(program: Program, seconds: float) -> None:
    """Calls JAX on a thread, because there it waits and aborts where no error can be raised."""
    arguments: dict[str, Any] = {
        "initialization_timeout": _NEVER,
        "heartbeat_timeout_seconds": _HEARTBEAT_SECONDS,
    }
    if program.local_devices is not None:
        arguments["local_device_ids"] = program.local_devices
    if program.coordinator:
        arguments |= {
            "coordinator_address": program.coordinator,
            "num_processes": program.processes,
            "process_id": program.process,
            "cluster_detection_method": "deactivate",
        }
    failures: list[Exception] = []

    def call() -> None:
        try:
            jax.distributed.initialize(**arguments)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=call, name="initialize", daemon=True)
    restore = skip_shutdown(2)
    thread.start()
    try:
        thread.join(seconds)
    except KeyboardInterrupt:
        skip_shutdown(130)
        raise
    if thread.is_alive():
        raise UserError(_explain_wait(program, seconds))
    restore()
    if failures:
        raise UserError(f"the processes cannot be joined: {failures[0]}") from failures[0]


def _explain_wait(program: Program, seconds: float) -> str:
    waited = f"the processes did not find each other within {seconds:g} s"
    if not program.coordinator:
        return f"{waited}; is the program started on all hosts?"
    if program.process == 0:
        return (
            f"{waited}: process 0 waits for {program.processes - 1} more at {program.coordinator};"
            " are all started, and do they reach that address?"
        )
    try:
        with socket.create_connection(_split(program.coordinator), timeout=5):
            state = "answers, so some other process is missing"
    except OSError as error:
        state = f"cannot be reached ({error.strerror or error})"
    return f"{waited}: the coordinator {program.coordinator} {state}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
