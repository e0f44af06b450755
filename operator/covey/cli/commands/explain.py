"""``covey explain``: why a resource is pending, degraded or held."""

from __future__ import annotations

import asyncio

import click
from pydantic import ValidationError

from covey.api.inference import DisaggregatedInference
from covey.cli import options
from covey.cli.data import echo_json, echo_yaml
from covey.cli.errors import CommandError
from covey.cli.live import connect, read_cluster
from covey.cli.watching.branch import Branch, grow
from covey.cli.watching.whereabouts import whereabouts
from covey.kube.errors import NotFound
from covey.kube.resources import DISAGGREGATED_INFERENCES


@click.command()
@click.argument("name")
@options.cluster
@options.output(("tree", "json", "yaml"), "tree")
@options.no_color
def explain(
    name: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """Why a running DisaggregatedInference is pending, degraded or held: a reason at each node of its tree."""
    show(look(name, namespace, context, kubeconfig), form, no_color=no_color, whole=False)


def look(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> Branch:
    """The tree of a resource in a cluster.

    Raises:
        CommandError: there is none of that name, or the cluster does not answer.
    """
    name = name.rpartition("/")[2]  # kubectl prints and takes KIND/NAME
    return asyncio.run(_read(name, namespace, context, kubeconfig))


async def _read(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> Branch:
    async with connect(kubeconfig, context) as client:
        where = namespace or client.namespace
        try:
            body = await client.get(DISAGGREGATED_INFERENCES, name, where)
        except NotFound:
            raise CommandError(f"there is no DisaggregatedInference {where}/{name}; is -n the right one?") from None
        facts = await read_cluster(client)
    try:
        inference = DisaggregatedInference.model_validate(body)
    except ValidationError as error:
        raise CommandError(f"{where}/{name} is not understood by this release: {error.errors()[0]['msg']}") from None
    groups = [group for group in facts.groups if group.metadata.namespace == where]
    pods = [pod for pod in facts.pods if pod.metadata.namespace == where]
    return grow(inference, groups, pods, whereabouts(inference.spec.topology.name, facts))


def show(branch: Branch, form: str, *, no_color: bool, whole: bool) -> None:
    """Print a tree; ``whole`` shows what is well too."""
    if form == "json":
        echo_json(branch)
    elif form == "yaml":
        echo_yaml([branch])
    else:
        from covey.cli.render.console import open_console  # noqa: PLC0415 - rich, only where it is drawn with
        from covey.cli.render.live import print_branch  # noqa: PLC0415 - the same

        print_branch(branch, open_console(no_color=no_color), whole=whole)
