"""``covey top``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_yaml
from covey.manifests.errors import InputError
from covey.placement.cluster.inventory import Inventory
from covey.planning.drawing import survey
from covey.planning.facts import ClusterFacts, read_facts
from covey.planning.inferences import default_topology
from covey.watching.usage import measure


@click.command()
@options.facts
@options.recursive
@click.option("--level", "levels", metavar="LEVEL", multiple=True, help="Only these levels. Repeatable.")
@click.option("--resource", metavar="NAME", help="What to count. Default: the device that nodes offer.")
@options.cluster
@options.output(("table", "json", "yaml"), "table")
@options.no_headers
@options.no_color
def top(
    nodes: tuple[str, ...],
    pods: tuple[str, ...],
    topologies: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    levels: tuple[str, ...],
    resource: str | None,
    namespace: str | None,  # noqa: ARG001 - nodes have none; taken from everybody
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_headers: bool,  # noqa: FBT001 - a flag
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """GPUs used, free and stranded by topology level.

    Stranded are free GPUs that a pod which wants a whole node cannot have: those on partly used nodes, and those on
    nodes that are cordoned or not ready. With --nodes and --pods no cluster is asked.
    """
    if pods and not nodes:
        raise InputError("--pods", "are given without their nodes", "give --nodes too, or leave out both for a cluster")
    if nodes:
        options.refuse_cluster(context, kubeconfig, "leave it out, or --nodes and --pods")
    facts = read_facts(nodes, pods, topologies, recursive=recursive)
    if not nodes:
        live = _from_cluster(kubeconfig, context)
        facts = replace(live, topologies=facts.topologies or live.topologies, warnings=facts.warnings)
    topology = default_topology(facts)
    known = [level.name for level in topology.levels]
    for level in levels:
        if level not in known:
            raise InputError("--level", f"topology {topology.name} has no level {level}", f"use {', '.join(known)}")
    inventory = Inventory([topology])
    for node in facts.nodes:
        inventory.set_node(node)
    grounds = survey(facts.nodes, facts.pods, partial(inventory.path, topology.name))
    report = measure(grounds, topology, resource, levels or None)
    for warning in facts.warnings:
        click.echo(f"warning: {warning}", err=True)
    if form == "json":
        echo_json(report)
    elif form == "yaml":
        echo_yaml([report])
    else:
        from covey.cli.render.tables import print_usage  # noqa: PLC0415 - needs rich, which may be missing

        print_usage(report, open_console(no_color=no_color), heads=not no_headers)


def _from_cluster(kubeconfig: str | None, context: str | None) -> ClusterFacts:
    import asyncio  # noqa: PLC0415 - with the client 180 ms, for a cluster that is asked alone

    from covey.cli.client import connect  # noqa: PLC0415 - the same
    from covey.planning.cluster import read_cluster  # noqa: PLC0415 - the same

    async def read() -> ClusterFacts:
        async with connect(kubeconfig, context) as client:
            return await read_cluster(client)

    return asyncio.run(read())
