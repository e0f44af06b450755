"""Mistakes on the command line itself and in what it names, in the one form that all errors have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from covey.cli.errors import BadInput
from covey.manifests.errors import InputError


@contextmanager
def one_form() -> Iterator[None]:
    """Say in one sentence what click would say in three lines.

    Raises:
        BadInput: in place of every InputError and every click.UsageError; a command group without a command still
            prints its help.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise BadInput(_in_words(error)) from None
    except InputError as error:
        raise BadInput(error) from None


class HelpfulGroup(click.Group):
    """A group of commands that prints its help where that is asked for, whatever options of its commands stand beside."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look for the help before the first command."""
        help_option = self.get_help_option(ctx)
        if args and args[0].startswith("-") and help_option and not set(ctx.help_option_names).isdisjoint(args):
            args = [help_option.opts[0]]  # click keeps the option of the first context that it was asked for
        return super().parse_args(ctx, args)


def _in_words(error: click.UsageError) -> InputError:
    program = error.ctx.command_path if error.ctx else "covey"
    see = f"see `{program} --help`"
    match error:
        case click.NoSuchOption():
            meant = ", ".join(error.possibilities or ())
            return InputError(error.option_name, "is no option of this command", f"try {meant}" if meant else see)
        case click.MissingParameter() if error.param is not None:
            return InputError(_name(error.param), "is missing", see)
        case click.BadParameter() if error.param is not None:
            return InputError(_name(error.param), _sentence(error.message), see)
    return InputError(program, _sentence(error.format_message()), see)


def _name(parameter: click.Parameter) -> str:
    """``-f/--filename``, ``NAME``."""
    return "/".join(parameter.opts) if isinstance(parameter, click.Option) else parameter.human_readable_name


def _sentence(message: str) -> str:
    """Click's sentence as a part of ours: no capital, no full stop."""
    text = " ".join(message.split()).rstrip(".")
    return text[:1].lower() + text[1:]
