"""The one error that a person, not a program, is meant to read."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Input that cannot be used; the message says what was wrong, found, right, and where.

    The command line prints the message alone and exits with code 2.
    """


class DivergedError(UserError):
    """Training gave numbers that are not finite; the record is complete and says so."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The known name nearest to one that is not, as the end of a clause; empty if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
