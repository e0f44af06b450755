"""Data for programs on standard output: JSON, YAML, and names as kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec

from covey.api.yaml_dialect import dump


def echo_json(value: Any) -> None:
    """One JSON document, indented."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    click.echo(text.decode())


def echo_yaml(values: Iterable[Any]) -> None:
    """YAML documents."""
    plain = (msgspec.to_builtins(value) for value in values)
    click.echo(dump(plain), nl=False)


def full_name(api_version: str, kind: str, name: str) -> str:
    """``pod/p``, or ``disaggregatedinference.inference.covey.dev/llama``: what kubectl prints with ``-o name``."""
    group = api_version.rpartition("/")[0]
    return f"{kind.lower()}{'.' if group else ''}{group}/{name}"


def echo_names(names: Iterable[str]) -> None:
    """A name a line; nothing at all where there are none."""
    for name in names:
        click.echo(name)
