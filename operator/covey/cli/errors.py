"""Errors of the command line: their words, and their exit status.

click.ClickException
└── CommandError       exit 1: the cluster does not answer, something needed is not installed
    └── BadInput       exit 2: an InputError of ``covey.manifests``, on its way to the terminal
"""

from __future__ import annotations

from typing import IO, Any, Final

import click

from covey.manifests.errors import InputError

# ruff: noqa: N818 - named for what happened


FAILED: Final = 1
BAD_INPUT: Final = 2


class CommandError(click.ClickException):
    """One sentence for the person at the terminal, on standard error."""

    exit_code = FAILED

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the sentence, without a usage line: the command was understood."""
        for line in self.format_message().splitlines():
            click.echo(f"error: {line}", file=file, err=file is None)


class BadInput(CommandError):
    """An error in the input: file, document, field, what is wrong, what to do."""

    exit_code = BAD_INPUT

    def __init__(self, error: InputError) -> None:
        super().__init__(str(error))
