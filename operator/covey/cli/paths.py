"""Paths in options, as kubectl takes them: repeated, and in comma lists."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import click

from covey.manifests.errors import InputError
from covey.manifests.sources import STDIN


def split(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Take comma lists apart; a path with a comma stands in double quotes, as for kubectl (a click callback).

    Raises:
        InputError: it is no such list, a path is empty, or standard input is named twice in one command.
    """
    option = "/".join(parameter.opts)
    try:
        found = tuple(path for value in values for path in next(csv.reader([value])) or [""])
    except csv.Error as error:
        raise InputError(option, f"is no comma list of paths: {error}", "put such a path in double quotes") from None
    if not all(found):
        raise InputError(option, "names an empty path", "give a file, a directory, or - for standard input")
    times = context.meta.get(__name__, 0) + found.count(STDIN)
    if times > 1:
        raise InputError(option, "standard input is named twice, but can be read once", "put one of them in a file")
    context.meta[__name__] = times
    return found
