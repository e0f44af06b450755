"""``covey plan``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import click
from msgspec import structs

from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_names, echo_yaml, full_name
from covey.manifests.errors import InputError
from covey.picture.floor import Floor
from covey.planning.additions import add_nodes, with_additions, with_elastic
from covey.planning.consolidations import consolidate
from covey.planning.drawing import floor_of
from covey.planning.facts import ClusterFacts, read_facts
from covey.planning.preemptions import preemptions_of
from covey.planning.request import Manifests, read_manifests, with_manifests, workloads_of
from covey.planning.run import Planned, plan_all

_FORMS = ("table", "wide", "tree", "picture", "json", "yaml", "name")


@click.command()
@options.files(required=False)
@options.facts
@options.recursive
@click.option("--cluster", is_flag=True, help="Read nodes and pods from the current context instead.")
@click.option(
    "--add-nodes",
    "additions",
    metavar="TEMPLATE=N[@LEVEL]|DOMAIN",
    multiple=True,
    help="What if there were N copies of a node (its name, or a file with one Node) in its rack, or together in a new "
    "domain of a level; or all nodes of an elastic domain of the ClusterTopology, by its name. Repeatable.",
)
@click.option(
    "--preempt",
    is_flag=True,
    help="Who would give way to what has no nodes, as little as suffices: units of lower priority of the same queue, and what "
    "others have borrowed from it.",
)
@click.option(
    "--defrag",
    is_flag=True,
    help="What replicas would have to move, and where to, for a domain to be free or a gang to start.",
)
@click.option(
    "--for",
    "beneficiary",
    metavar="NS/NAME",
    help="With --defrag: the resource that is to start, or to have capacity for its surplus.",
)
@click.option(
    "--free",
    metavar="'N LEVEL'",
    help="With --defrag: so many free domains, as '1 rack'; '+1 rack': one more than now.",
)
@click.option(
    "--ordinary-pods",
    is_flag=True,
    help="With --preempt: ordinary pods of lower priority give way, too. Their budgets are not looked at.",
)
@options.cluster
@options.output(_FORMS, "table")
@options.no_headers
@options.no_color
def plan(
    files: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    nodes: tuple[str, ...],
    pods: tuple[str, ...],
    topologies: tuple[str, ...],
    cluster: bool,  # noqa: FBT001 - a flag
    additions: tuple[str, ...],
    preempt: bool,  # noqa: FBT001 - a flag
    defrag: bool,  # noqa: FBT001 - a flag
    beneficiary: str | None,
    free: str | None,
    ordinary_pods: bool,  # noqa: FBT001 - a flag
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_headers: bool,  # noqa: FBT001 - a flag
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """Show where everything would be placed, or why not. Nothing is written anywhere.

    Of what runs with another revision the first step of its rollout is planned beside it.

    Exit status: 0 every minimum is placed; 3 at least one workload is infeasible, or a change of one; 4 none infeasible but
    at least one unknown (search limit); 2 bad input.
    """
    if not (files or defrag):
        raise InputError("-f/--filename", "is missing", "see `covey plan --help`")
    if (beneficiary or free) and (not defrag or (beneficiary and free)):
        raise InputError("--for/--free", "are two questions of --defrag", "give one of them, with --defrag")
    if not (nodes or cluster or additions):
        raise InputError("--nodes", "is missing", "give what `kubectl get nodes -o json` prints, or use --cluster")
    if cluster and (nodes or pods):
        raise InputError("--cluster", "reads nodes and pods itself", "leave out --nodes and --pods, or --cluster")
    if not cluster:
        options.refuse_cluster(context, kubeconfig, "use --cluster instead of --nodes, or leave it out")
    facts = read_facts(nodes, pods, topologies, recursive=recursive)

    def read(facts: ClusterFacts, fallback: str) -> Manifests:
        if not files:
            return Manifests()
        return read_manifests(files, namespace, fallback, facts.topologies, recursive=recursive)

    facts, manifests = _ask_cluster(kubeconfig, context, facts, read) if cluster else (facts, read(facts, "default"))
    planned = _plan(manifests, facts, additions)
    if preempt:
        preemptions = tuple(preemptions_of(planned, time.time(), ordinary_pods=ordinary_pods))
        planned = replace(planned, report=structs.replace(planned.report, preemptions=preemptions))
    if defrag:
        answer = consolidate(planned, beneficiary, free)
        planned = replace(planned, report=structs.replace(planned.report, consolidation=answer))
    _show(planned, form, no_headers=no_headers, no_color=no_color)
    sys.exit(planned.report.status)


def _ask_cluster(
    kubeconfig: str | None, context: str | None, given: ClusterFacts, read: Callable[[ClusterFacts, str], Manifests]
) -> tuple[ClusterFacts, Manifests]:
    """The facts of the cluster beside those of files, and the manifests, of which it is asked what pods they would have."""
    import asyncio  # noqa: PLC0415 - with the client 180 ms, for --cluster alone

    from covey.cli.client import connect  # noqa: PLC0415 - the same
    from covey.planning.cluster import (  # noqa: PLC0415 - the same
        read_cluster,
        with_queues,
        with_resource_quotas,
        with_revisions,
        with_samples,
    )
    from covey.watching.presence import find_silent_leaders, read_leases  # noqa: PLC0415 - the same

    async def ask() -> tuple[ClusterFacts, Manifests]:
        async with connect(kubeconfig, context) as client:
            live = await with_queues(await read_cluster(client), client)
            silent = find_silent_leaders(await read_leases(client) or (), time.time())
            warnings = (*given.warnings, *live.warnings, *(f"{each.meaning} {each.remedy}" for each in silent))
            facts = replace(live, topologies=given.topologies or live.topologies, warnings=warnings)
            manifests = read(facts, client.namespace)
            if not manifests.inferences and not manifests.parts.pods:
                return facts, manifests
            namespaces = sorted({inference.metadata.namespace for _, inference, _ in manifests.inferences})
            facts = await with_resource_quotas(await with_revisions(facts, client), client, namespaces)
            return await with_samples(facts, manifests, client), manifests

    return asyncio.run(ask())


def _plan(manifests: Manifests, facts: ClusterFacts, additions: Sequence[str]) -> Planned:
    facts = with_manifests(facts, manifests)
    workloads, warnings = workloads_of(manifests, facts)
    facts, added = add_nodes(replace(facts, warnings=(*facts.warnings, *warnings)), additions, workloads)
    planned = plan_all(workloads, facts, time.perf_counter)
    planned = replace(planned, report=with_additions(planned.report, added))
    return replace(planned, report=with_elastic(planned, time.perf_counter))


def _show(planned: Planned, form: str, *, no_headers: bool, no_color: bool) -> None:
    report = planned.report
    if form == "json":
        echo_json(report)
        return
    if form == "yaml":
        echo_yaml([report])
        return
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    if form == "name":
        echo_names(full_name(*workload.resource, workload.name) for workload in planned.workloads)
        return
    _print(planned, form, no_headers=no_headers, no_color=no_color)


def _print(planned: Planned, form: str, *, no_headers: bool, no_color: bool) -> None:
    """The forms that are drawn with rich."""
    report, console = planned.report, open_console(no_color=no_color)
    from covey.cli.picture.text import print_picture  # noqa: PLC0415 - needs rich, which may be missing
    from covey.cli.render.objects import print_tree  # noqa: PLC0415 - the same
    from covey.cli.render.tables import (  # noqa: PLC0415 - the same
        print_added,
        print_changes,
        print_moves,
        print_preemptions,
        print_reasons,
        print_table,
    )

    if form == "picture":
        print_picture(_floor(planned), console)
    elif form == "tree":
        print_tree(report, console)
    else:
        print_table(report, console, wide=form == "wide", heads=not no_headers)
    rows_alone = no_headers and form in ("table", "wide")
    beside = open_console(no_color=no_color, err=rows_alone)
    if form != "tree":  # which says it at its units
        print_reasons(report.workloads, beside)
    print_changes(report, beside)
    print_added(report, beside)
    print_preemptions(report, beside)
    print_moves(report, beside)


def _floor(planned: Planned) -> Floor:
    return floor_of(planned)
