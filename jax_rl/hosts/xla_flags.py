"""Compiler and runtime flags of a platform, from xla_flags.toml into the environment.

`eval "$(python -m jax_rl.hosts.xla_flags tpu)"` in a launcher, before the program starts: JAX
reads the variables once, while it is imported, so nothing here may import it.
"""

import dataclasses
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jax_rl.errors import UserError, suggest

RECORDED = re.compile(r"XLA_FLAGS|LIBTPU_INIT_ARGS|NCCL_\w+|XLA_PYTHON_\w+")
"""Variables that change what a program does or how much it gets, and so belong to a record."""

_DATA = Path(__file__).with_name("xla_flags.toml")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One flag inside a variable, or a whole variable where `flag` is empty."""

    variable: str
    value: str
    why: str
    source: str
    flag: str = ""

    @property
    def text(self) -> str:
        """What stands in the variable for this setting."""
        return f"{self.flag}={self.value}" if self.flag else self.value


def load_settings(platform: str) -> tuple[Setting, ...]:
    """The settings of a platform in the order of the file.

    Raises:
      UserError: the platform is not in the file; the message lists those that are.
    """
    tables = tomllib.loads(_DATA.read_text(encoding="utf-8"))
    if platform not in tables:
        known = ", ".join(sorted(tables))
        raise UserError(
            f"no flags for platform {platform!r}{suggest(platform, tables)} (known: {known})"
        )
    return tuple(Setting(**row) for row in tables[platform])


def choose_values(platform: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables to set on a platform, where what `environ` already says stays and wins.

    A variable of flags keeps the user's text at its end and gains the flags that it does not
    name; any other variable is set only where it is not. What would not change is left out.

    Args:
      platform: a table of xla_flags.toml, `tpu` or `cuda`.
      environ: the environment as the user set it.

    Returns:
      Variable → whole new value.

    Raises:
      UserError: the platform is not known.
    """
    chosen: dict[str, list[str]] = {}
    for setting in load_settings(platform):
        if not _is_decided(setting, environ.get(setting.variable, "").strip()):
            chosen.setdefault(setting.variable, []).append(setting.text)
    return {
        variable: " ".join([*texts, environ.get(variable, "").strip()]).strip()
        for variable, texts in chosen.items()
    }


def recorded_flags(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that a run's record must name, sorted by name."""
    return {name: environ[name] for name in sorted(environ) if RECORDED.fullmatch(name)}


def _is_decided(setting: Setting, present: str) -> bool:
    if not setting.flag:
        return bool(present)
    # XLA_FLAGS may be the path of a file of flags instead; it cannot be joined with others.
    if present and not present.startswith("-"):
        return True
    return _bare_name(setting.flag) in {_bare_name(word) for word in present.split()}


def _bare_name(word: str) -> str:
    """`xla_some_flag` of `--xla_some_flag=true`, and of `--noxla_some_flag`, which means false."""
    return re.sub(r"^no(?=xla_)", "", word.lstrip("-").partition("=")[0])


def _format_exports(values: Mapping[str, str]) -> Iterator[str]:
    for variable, value in values.items():
        quoted = value.replace("'", "'\"'\"'")
        yield f"export {variable}='{quoted}'"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints one `export NAME='value'` a line for a shell to `eval`.

    Returns:
      Exit code: 0, or 2 for an unknown platform or a wrong number of arguments.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if len(words) != 1:
            raise UserError("usage: python -m jax_rl.hosts.xla_flags PLATFORM")
        lines = list(_format_exports(choose_values(words[0], os.environ)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
