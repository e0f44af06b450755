"""``covey headroom``: how many more replicas of each role would fit now."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from typing import Any, Final

import click

from covey.api import constants as names
from covey.api.core import rfc3339
from covey.cli import options
from covey.cli.console import open_console
from covey.cli.data import echo_json, echo_yaml
from covey.cli.errors import CommandError
from covey.cli.rollout_state import Body, ResourceClient, ResourceReference
from covey.manifests.errors import InputError
from covey.planning.additions import HeadroomReport, RoleHeadroomReport, headroom_of
from covey.planning.facts import ClusterFacts, read_facts
from covey.planning.request import Manifests, read_manifests, with_manifests, workloads_of
from covey.planning.run import plan_all

#: Seconds between two looks.
_PACE: Final = 0.3


@click.command()
@click.argument("name", required=False)
@options.files(required=False)
@options.facts
@options.recursive
@click.option("--last", is_flag=True, help="Only show the last answer; nothing is asked, and nothing written.")
@click.option("--timeout", type=click.FloatRange(1), default=60.0, metavar="SECONDS", help="Default: 60.")
@options.cluster
@options.output(("table", "json", "yaml"), "table")
@options.no_headers
@options.no_color
def headroom(
    name: str | None,
    files: tuple[str, ...],
    nodes: tuple[str, ...],
    pods: tuple[str, ...],
    topologies: tuple[str, ...],
    recursive: bool,  # noqa: FBT001 - a flag
    last: bool,  # noqa: FBT001 - a flag
    timeout: float,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    form: str,
    no_headers: bool,  # noqa: FBT001 - a flag
    no_color: bool,  # noqa: FBT001 - a flag
) -> None:
    """Show how many more replicas of each role would fit now, all else as it is.

    Of a resource in a cluster it asks by an annotation, and waits for the answer in its status. Of manifests (-f) it
    says what would be so once they run, and asks no cluster: --nodes and --pods say what there is.
    """
    if files:
        _refuse(name, context, kubeconfig, nodes)
        facts = read_facts(nodes, pods, topologies, recursive=recursive)
        reports = _plan_reports(
            read_manifests(files, namespace, "default", facts.topologies, recursive=recursive), facts
        )
    elif nodes or pods or topologies:
        raise InputError("-f", "is missing", "give the manifests, or leave out --nodes, --pods and --topology")
    elif not name:
        raise InputError("NAME", "is missing", "name a DisaggregatedInference, or give manifests with -f")
    else:
        stored = ResourceReference(name, namespace, context, kubeconfig)
        reports = [asyncio.run(_last(stored) if last else _ask(stored, timeout))]
    if form == "json":
        echo_json(reports[0] if not files else reports)
    elif form == "yaml":
        echo_yaml(reports)
    else:
        from covey.cli.render.tables import print_headroom  # noqa: PLC0415 - needs rich, which may be missing

        for report in reports:
            print_headroom(report, open_console(no_color=no_color), heads=not no_headers, named=bool(files))


def _refuse(name: str | None, context: str | None, kubeconfig: str | None, nodes: tuple[str, ...]) -> None:
    """Refuse options that do not go with manifests."""
    if name:
        raise InputError("NAME", "does not go with -f", "leave out one of them")
    if not nodes:
        raise InputError("--nodes", "is missing", "give what `kubectl get nodes -o json` prints")
    options.refuse_cluster(context, kubeconfig, "leave it out, or ask for a resource by its name")


def _plan_reports(manifests: Manifests, facts: ClusterFacts) -> list[HeadroomReport]:
    facts = with_manifests(facts, manifests)
    workloads, warnings = workloads_of(manifests, facts)
    planned = plan_all(workloads, replace(facts, warnings=(*facts.warnings, *warnings)), time.perf_counter)
    for warning in planned.report.warnings:
        click.echo(f"warning: {warning}", err=True)
    return list(headroom_of(planned))


async def _last(stored: ResourceReference) -> HeadroomReport:
    async with stored.connect() as resource:
        body = await resource.body()
    if not _stored_answer(body):
        what = f"nobody has asked for the head-room of {resource.name} yet"
        raise CommandError(f"{what}; leave out --last to ask")
    return report_of(body)


async def _ask(stored: ResourceReference, timeout: float) -> HeadroomReport:  # noqa: ASYNC109 - of the answer, not of this call
    async with stored.connect() as resource:
        asked = _question()
        await resource.patch({"metadata": {"annotations": {names.ANNOTATION_HEADROOM: asked}}})
        try:
            async with asyncio.timeout(timeout):
                return report_of(await _answer(resource, asked))
        except TimeoutError:
            what = f"no answer within {timeout:g} s"
            remedy = "see whether the operator and the scheduler process run; it will be in the status once it is there"
            raise CommandError(f"{what}; {remedy}") from None


def _question() -> str:
    """A text that nobody else asks with; people who look at the resource see when it was."""
    return f"{rfc3339(time.time())}-{secrets.token_hex(4)}"


async def _answer(resource: ResourceClient, asked: str) -> Body:
    while True:
        body = await resource.body()
        answered = str(_stored_answer(body).get("asked", ""))
        newest = (body["metadata"].get("annotations") or {}).get(names.ANNOTATION_HEADROOM, "")
        # Somebody may have asked after us: the answer to that is younger still. A time may follow (headroom-seconds).
        if any(answered == question or answered.startswith(f"{question} ") for question in (asked, newest) if question):
            return body
        await asyncio.sleep(_PACE)


def _stored_answer(body: Body) -> dict[str, Any]:
    return dict((body.get("status") or {}).get("headroom") or {})


def report_of(body: Body) -> HeadroomReport:
    """Read the head-room from the status of a stored resource."""
    answer, meta = _stored_answer(body), body["metadata"]
    roles = tuple(
        RoleHeadroomReport(row["name"], row.get("replicas", 0), row.get("admitted", 0), row.get("maxFeasible"))
        for row in (body.get("status") or {}).get("roles", ())
    )
    return HeadroomReport(
        meta["namespace"], meta["name"], roles, answer.get("message", ""), answer.get("observedAt", ""), answer["asked"]
    )
