"""A layout file read and checked."""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jax_rl.errors import UserError, suggest
from jax_rl.mesh.layout import LOGICAL_AXES, MESH_AXES, SLICES, TABLES, Layout, Rules, Size

SCANNED_AXES = ("layers", "length")
"""Axes that a loop runs over; splitting them over devices is refused."""
MET_IN_ONE_ARRAY = (
    ("embed", "heads", "head_dim"),
    ("embed", "kv_heads", "head_dim"),
    ("embed", "mlp"),
    ("embed", "vocab"),
    ("batch", "heads", "head_dim"),
    ("batch", "kv_heads", "head_dim"),
    ("batch", "mlp"),
    ("batch", "vocab"),
)
"""Logical axes of one weight or activation, which cannot lie on the same mesh axis."""
CACHE_AXES = ("batch", "kv_heads", "head_dim")
"""Logical axes that the cache can be split along."""


def load_layout(path: Path) -> Layout:
    """Reads and checks one layout file; tables that it lacks are those that they stand for.

    Raises:
      UserError: not TOML, an unknown table, axis or mesh axis, or a rule that cannot hold.
    """
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: the layout file cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}") from None
    _check_keys(data, ("description", "mesh", *TABLES), f"{path}")
    compute = _read_rules(data.get("compute", {}), f"{path} [compute]")
    sampler = _read_table(data, "sampler", path, default=compute)
    table = dict(sampler)
    own = tuple((axis, table[axis]) for axis in CACHE_AXES if axis in table)
    return Layout(
        name=Path(path).stem,
        description=str(data.get("description", "")),
        mesh=_read_mesh(data.get("mesh", {}), f"{path} [mesh]"),
        weights=_read_rules(data.get("weights", {}), f"{path} [weights]"),
        compute=compute,
        sampler=sampler,
        cache=_read_table(data, "cache", path, default=own, known=CACHE_AXES),
    )


def _read_mesh(sizes: Any, where: str) -> tuple[tuple[str, Size], ...]:
    _check_keys(sizes, MESH_AXES, where)
    for axis, size in sizes.items():
        whole = isinstance(size, int) and not isinstance(size, bool)
        if size != SLICES and not (whole and (size == -1 or size > 0)):
            raise UserError(
                f"{where} {axis} = {size!r}: a size is 1, 2, ..., -1 (the devices left) or"
                f" {SLICES!r}"
            )
    for special in (-1, SLICES):
        if sum(size == special for size in sizes.values()) > 1:
            raise UserError(f"{where}: only one axis may be {special!r}")
    return tuple((axis, sizes.get(axis, 1)) for axis in MESH_AXES)


def _read_table(
    data: Mapping[str, Any],
    name: str,
    path: Path,
    *,
    default: Rules,
    known: Sequence[str] = LOGICAL_AXES,
) -> Rules:
    """A table that may be left out."""
    return _read_rules(data[name], f"{path} [{name}]", known) if name in data else default


def _check_keys(table: Any, known: Sequence[str], where: str) -> None:
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: a table was expected, found {table!r}")
    for key in table:
        if key not in known:
            hint = suggest(key, known)
            raise UserError(f"{where}: unknown key {key!r}{hint} Known: {', '.join(known)}")


def _read_rules(table: Any, where: str, known: Sequence[str] = LOGICAL_AXES) -> Rules:
    _check_keys(table, known, where)
    rules: list[tuple[str, tuple[str, ...]]] = []
    for axis, value in table.items():
        names = (value,) if isinstance(value, str) else value
        if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
            raise UserError(f"{where} {axis} = {value!r}: a mesh axis or a list of them is right")
        for name in names:
            if name not in MESH_AXES:
                raise UserError(
                    f"{where} {axis}: unknown mesh axis {name!r}; known: {', '.join(MESH_AXES)}"
                )
            if names.count(name) > 1:
                raise UserError(f"{where} {axis} names the mesh axis {name!r} twice")
        if axis in SCANNED_AXES and names:
            raise UserError(f"{where}: {axis} cannot be split; a loop runs over it")
        rules.append((axis, tuple(names)))
    _check_collisions(dict(rules), where)
    return tuple(rules)


def _check_collisions(rules: Mapping[str, tuple[str, ...]], where: str) -> None:
    for axes in MET_IN_ONE_ARRAY:
        for one, other in itertools.combinations(axes, 2):
            for name in set(rules.get(one, ())) & set(rules.get(other, ())):
                raise UserError(
                    f"{where}: {one} and {other} both lie on {name!r}, but one array has both;"
                    " give one of them another mesh axis"
                )
