"""``covey status``: the live tree."""

from __future__ import annotations

import click

from covey.cli import options
from covey.cli.commands.explain import look, show


@click.command()
@click.argument("name")
@options.cluster
@options.output(("tree", "json", "yaml"), "tree")
@options.no_color
def status(
    name: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """The live tree of one DisaggregatedInference: what is ready, where it lies, what it waits for."""
    show(look(name, namespace, context, kubeconfig), form, no_color=no_color, whole=True)
