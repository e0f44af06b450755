"""Data for programs on standard output: JSON, YAML, and names as kubectl prints them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec
import yaml

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
