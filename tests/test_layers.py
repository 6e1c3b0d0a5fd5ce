"""Data flows down the list of rooms: no room imports one that comes after it."""

import ast
from pathlib import Path

import jax_rl

_NAMES = """
    hosts costs mesh model sampler text rewards tasks learner trainer study evaluation bench plan
    sweep imports report watch commands
"""
ROOMS = _NAMES.split()

HOUSE = Path(jax_rl.__file__).parent


def list_imports(path: Path) -> set[str]:
    """Rooms that a file names, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "jax_rl" and len(parts) > 1:
                found.add(parts[1])
    return found


def test_every_room_has_its_place() -> None:
    assert {path.parent.name for path in HOUSE.glob("*/__init__.py")} == set(ROOMS)


def test_no_import_goes_against_the_flow() -> None:
    against = [
        f"{path.relative_to(HOUSE)} imports {other}"
        for place, room in enumerate(ROOMS)
        for path in (HOUSE / room).rglob("*.py")
        for other in sorted(list_imports(path) & set(ROOMS[place + 1 :]))
    ]
    assert against == []
