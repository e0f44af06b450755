"""``covey logs``: the logs of a resource's pods, side by side."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from covey.api import constants as names
from covey.api.core import Pod
from covey.cli import options
from covey.cli.errors import CommandError
from covey.cli.rollout_state import ResourceClient, ResourceReference
from covey.kube.errors import ApiError
from covey.kube.resources import PODS

#: Logs that are followed at a time: each is a connection to a kubelet.
_MOST: Final = 64


@click.command()
@click.argument("name")
@click.option("--role", metavar="ROLE", help="Of this role alone.")
@click.option("--unit", type=click.IntRange(0), metavar="N", help="Of this unit alone.")
@click.option("--replica", type=click.IntRange(0), metavar="N", help="Of the replicas with this number.")
@click.option(
    "--index", type=click.IntRange(0), metavar="N", help="Of the pods with this number in their replica; 0 leads."
)
@click.option("-c", "--container", metavar="NAME", help="Default: the first of each pod.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before it restarted.")
@click.option(
    "--tail", type=click.IntRange(0), metavar="N", help="The last N lines of each. Default: all; 20 with several pods."
)
@click.option("--since", type=click.IntRange(1), metavar="SECONDS", help="Only lines that are not older.")
@options.cluster
def logs(
    name: str,
    role: str | None,
    unit: int | None,
    replica: int | None,
    index: int | None,
    container: str | None,
    follow: bool,  # noqa: FBT001 - a flag
    previous: bool,  # noqa: FBT001 - a flag
    tail: int | None,
    since: int | None,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Print the logs of a resource's pods, each line behind the name of its pod.

    Pods without a node, and containers that have not started, are named on standard error. --follow keeps to the pods that
    there are when it begins.
    """
    chosen = {
        names.LABEL_INFERENCE: name.rpartition("/")[2],
        names.LABEL_ROLE: role,
        names.LABEL_UNIT: unit,
        names.LABEL_REPLICA: replica,
        names.LABEL_INDEX: index,
    }
    labels = ",".join(f"{key}={value}" for key, value in chosen.items() if value is not None)
    given = {
        "container": container,
        "follow": "true" if follow else None,
        "previous": "true" if previous else None,
        "tailLines": tail,
        "sinceSeconds": since,
    }
    wanted = {key: str(value) for key, value in given.items() if value is not None}
    asyncio.run(_print_logs(ResourceReference(name, namespace, context, kubeconfig), labels, wanted))


async def _print_logs(stored: ResourceReference, labels: str, wanted: dict[str, str]) -> None:
    async with stored.connect(_MOST) as resource:
        await resource.body()
        pods, _ = await resource.client.list(PODS, resource.namespace, labels=labels, type=Pod)
        if not pods:
            raise CommandError("no pod is chosen; see covey status for those that there are")
        if len(pods) > _MOST:
            raise CommandError(
                f"{len(pods)} pods are chosen, more than {_MOST}; choose with --role, --unit and --replica"
            )
        if len(pods) > 1:
            wanted.setdefault("tailLines", "20")
        pods.sort(key=lambda pod: pod.metadata.name)
        width = max(len(pod.metadata.name) for pod in pods)
        printed = await asyncio.gather(*(_print_log(resource, pod, wanted, width) for pod in pods))
    if not any(printed):
        raise CommandError("none of the pods has a log")


async def _print_log(resource: ResourceClient, pod: Pod, wanted: dict[str, str], width: int) -> bool:
    """Print one log; False where there is none, which is said on standard error."""
    name = pod.metadata.name
    if not pod.spec.node_name:
        click.echo(f"{name}: has no node yet", err=True)
        return False
    options_of_pod = {"container": pod.spec.containers[0].name} | wanted
    try:
        async for line in resource.client.logs(resource.namespace, name, **options_of_pod):
            click.echo(f"{name:<{width}} {line.decode(errors='replace')}")
    except ApiError as error:
        click.echo(f"{name}: {error.message}", err=True)
        return False
    return True
