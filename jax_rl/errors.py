"""The one error that a person, not a program, is meant to read."""


class UserError(Exception):
    """Input that cannot be used; the message says what was wrong, found, right, and where.

    The command line prints the message alone and exits with code 2.
    """


class DivergedError(UserError):
    """Training gave numbers that are not finite; the record is complete and says so."""
