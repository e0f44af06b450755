"""``covey release-budgets``: delete the PodDisruptionBudgets of gangs, so that nodes can be drained without an operator.

No resource owns the budget of a namespace, so none goes when Covey is uninstalled, and without an operator nobody moves
a replica: every drain of its node would wait for ever.
"""

from __future__ import annotations

import asyncio
from typing import Final

import click

from covey.api import constants as names
from covey.backends.seam import Owned
from covey.cli import options
from covey.cli.client import connect
from covey.kube.errors import Conflict, NotFound
from covey.kube.resources import POD_DISRUPTION_BUDGETS
from covey.manifests.errors import InputError

#: Those of former releases, one for each resource, have the label too; whatever Helm made has another value.
_OURS: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


@click.command("release-budgets")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Those of every namespace.")
@options.cluster
def release_budgets(everywhere: bool, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: FBT001 - a flag
    """Let pods of gangs be evicted: delete the PodDisruptionBudgets that the operator made.

    For nodes that are to be drained while no operator runs. One that runs makes them again at once.
    """
    if everywhere and namespace:
        raise InputError("-A", "contradicts --namespace", "give one of them")
    released = asyncio.run(_release(namespace, context, kubeconfig, everywhere=everywhere))
    for place, name in released:
        click.echo(f'poddisruptionbudget.policy "{name}" deleted from {place} namespace')
    if not released:
        click.echo("No budget of Covey's found.", err=True)


async def _release(
    namespace: str | None, context: str | None, kubeconfig: str | None, *, everywhere: bool
) -> list[tuple[str, str]]:
    """Delete them one by one; returns namespace and name of each that was there."""
    released = []
    async with connect(kubeconfig, context) as client:
        where = None if everywhere else namespace or client.namespace
        budgets, _ = await client.list(POD_DISRUPTION_BUDGETS, where, labels=_OURS, type=Owned)
        for budget in budgets:
            metadata = budget.metadata
            try:
                await client.delete(POD_DISRUPTION_BUDGETS, metadata.name, metadata.namespace, uid=metadata.uid)
            except (NotFound, Conflict):
                continue
            released.append((metadata.namespace, metadata.name))
    return released
