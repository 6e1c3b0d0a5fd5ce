"""Where process 0 can be reached, made known to all through the devices, once."""

import contextlib
import dataclasses
import json
import socket

import jax
import numpy as np
from jax.experimental import multihost_utils

_BYTES = 1024
_UNUSED = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses that no host has (RFC 5737, RFC 3849): they show the way out of this host."""


@dataclasses.dataclass(frozen=True)
class Address:
    """What a process has to know to join the others."""

    names: tuple[str, ...]
    """Names and IP addresses of process 0, the likeliest first."""
    port: int
    key: bytes
    """Secret that only the processes of this program know."""


def exchange_address(address: Address | None) -> Address:
    """Gives the address that process 0 has to all; a collective of all processes.

    Args:
      address: that of process 0; None on the others.
    """
    data = np.zeros(_BYTES, np.uint8)
    if address is not None:
        names = list(address.names)
        while len(text := json.dumps([names, address.port, address.key.hex()]).encode()) > _BYTES:
            names.pop()
        data[: len(text)] = np.frombuffer(text, np.uint8)
    shared = multihost_utils.broadcast_one_to_all(data, is_source=jax.process_index() == 0)
    names, port, key = json.loads(np.asarray(shared, np.uint8).tobytes().rstrip(b"\0"))
    return Address(tuple(names), port, bytes.fromhex(key))


def find_own_names() -> tuple[str, ...]:
    """Names under which other hosts may reach this one: routed addresses first, loopback last."""
    names = []
    for family, elsewhere in _UNUSED:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))  # chooses a route, and sends nothing
            names.append(str(probe.getsockname()[0]))
    name = socket.gethostname()
    names.append(name)
    with contextlib.suppress(OSError):
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        names += [str(entry[4][0]) for entry in found]
    names.append("127.0.0.1")
    return tuple(sorted(dict.fromkeys(names), key=lambda name: name.startswith(("127.", "::1"))))
