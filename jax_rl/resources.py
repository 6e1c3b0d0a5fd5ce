"""Finds layouts and configurations, which are files: by path, or by the name of one of ours."""

import difflib
from pathlib import Path

from jax_rl.errors import UserError

_PACKAGE = Path(__file__).resolve().parent


def find_layout(name: str) -> Path:
    """The layout file that `name` stands for: a path, or `fsdp` for `sharding/fsdp.toml`.

    An existing path wins, then the folder of the checkout, then the folder in the package.

    Raises:
      UserError: there is no such file; the message lists the known names.
    """
    return _find(name, folder="sharding", what="layout")


def find_config(name: str) -> Path:
    """The configuration file that `name` stands for: a path, or the name of one of `configs/`.

    Raises:
      UserError: there is no such file; the message lists the known names.
    """
    return _find(name, folder="configs", what="configuration")


def list_known(folder: str) -> tuple[str, ...]:
    """Names of the files in `sharding` or `configs`, sorted, without `.toml`."""
    return tuple(sorted(path.stem for path in _locate_folder(folder).glob("*.toml")))


def _find(name: str, *, folder: str, what: str) -> Path:
    path = Path(name).expanduser()
    if path.is_file():
        return path
    known = list_known(folder)
    if name in known:
        return _locate_folder(folder) / f"{name}.toml"
    near = difflib.get_close_matches(path.stem, known, n=1, cutoff=0.5)
    raise UserError(
        f"no {what} {name!r}: it is neither a file nor a known name."
        + (f" Did you mean {near[0]!r}?" if near else "")
        + f" Known: {', '.join(known)}"
    )


def _locate_folder(folder: str) -> Path:
    checkout = _PACKAGE.parent / folder
    # pyproject.toml tells a checkout from a site-packages with an unrelated folder of that name.
    if checkout.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file():
        return checkout
    return _PACKAGE / "_data" / folder
