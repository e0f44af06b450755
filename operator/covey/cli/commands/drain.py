"""``covey drain``: have replicas leave nodes as soon as may be, as before maintenance that will not wait.

A cordon alone may be taken back in a moment, so replicas that serve leave a node that is only cordoned without a
successor after a while. The rights are the user's: the same as for ``kubectl cordon``.
"""

from __future__ import annotations

import asyncio
from typing import Final

import click

from covey.api import constants as names
from covey.cli import options
from covey.cli.client import connect
from covey.cli.errors import CommandError
from covey.kube.errors import NotFound
from covey.kube.resources import NODES

_ASKED: Final = "true"


@click.command()
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@click.option("--undo", is_flag=True, help="Let nodes be used again: uncordon them, and take the annotation away.")
@options.cluster
def drain(
    nodes: tuple[str, ...],
    undo: bool,  # noqa: FBT001 - a flag
    namespace: str | None,  # noqa: ARG001 - -n is taken from everybody
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Have replicas leave nodes at once: those above their minimum also where there is no room for successors.

    Cordon the nodes and annotate them. It waits for nothing and evicts nothing: kubectl drain does both afterwards.
    """
    asyncio.run(_drain(nodes, context, kubeconfig, asks=not undo))


async def _drain(nodes: tuple[str, ...], context: str | None, kubeconfig: str | None, *, asks: bool) -> None:
    body = {
        "metadata": {"annotations": {names.ANNOTATION_DRAIN: _ASKED if asks else None}},
        "spec": {"unschedulable": True if asks else None},
    }
    async with connect(kubeconfig, context) as client:
        for name in nodes:
            try:
                await client.merge_patch(NODES, name, None, body)
            except NotFound:
                raise CommandError(f'nodes "{name}" not found') from None
            click.echo(f"node/{name} {'cordoned, and left at once' if asks else 'uncordoned'}")
