"""Data for programs on standard output: JSON, YAML, and names as kubectl prints them.

Paths in options, as kubectl takes them: repeated, and in comma lists.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec
import yaml

from covey.manifests.sources import STDIN, InputError


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


_Base: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc,valid-type]  # the C emitter where PyYAML was built with it
    """No anchors: what appears twice is written twice, as every other tool does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def echo_json(value: Any) -> None:
    """One JSON document, indented."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    click.echo(text.decode())


def echo_yaml(values: Iterable[Any]) -> None:
    """YAML documents."""
    plain = (msgspec.to_builtins(value) for value in values)
    text = yaml.dump_all(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    click.echo(text, nl=False)


def full_name(api_version: str, kind: str, name: str) -> str:
    """``pod/p``, or ``disaggregatedinference.inference.covey.dev/llama``: what kubectl prints with ``-o name``."""
    group = api_version.rpartition("/")[0]
    return f"{kind.lower()}{'.' if group else ''}{group}/{name}"


def echo_names(names: Iterable[str]) -> None:
    """A name a line; nothing at all where there are none."""
    for name in names:
        click.echo(name)
