#!/usr/bin/env python3
"""Prints where every array of a run lies, for published models in every layout.

    python scripts/shardings.py                      all tables, one after the other
    python scripts/shardings.py qwen3_8b fsdp        those whose model or layout is named
    python scripts/shardings.py --write              rewrites tests/golden/

The tables are for 256 devices that need not be there: programs are traced on an abstract mesh.
tests/test_golden_shardings.py compares them with tests/golden/, so that a change of where an array
lies is reviewed as a diff of text.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import conftest  # noqa: F401  (the devices that the tests have)

# isort: split
import sharding_tables

from jax_rl.resources import list_known


def main() -> None:
    """Prints or rewrites the tables that are asked for."""
    known = {*sharding_tables.MODELS, *list_known("sharding")}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(sorted(known)))
    parser.add_argument("--write", action="store_true", help="rewrite tests/golden/")
    arguments = parser.parse_args()
    for name in {*arguments.names} - known:
        parser.error(f"unknown model or layout {name!r}; known: {', '.join(sorted(known))}")
    models = {*arguments.names} & {*sharding_tables.MODELS} or {*sharding_tables.MODELS}
    layouts = {*arguments.names} & {*list_known("sharding")} or {*list_known("sharding")}
    for model, layout in sharding_tables.list_tables():
        if model not in models or layout not in layouts:
            continue
        text = sharding_tables.write_table(model, layout)
        if arguments.write:
            path = sharding_tables.find_table(model, layout)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path)
        else:
            print(text)


if __name__ == "__main__":
    main()
