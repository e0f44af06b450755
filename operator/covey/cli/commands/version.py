"""``covey version``."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click

from covey import __version__
from covey.cli import options
from covey.cli.data import echo_json, echo_yaml
from covey.cli.errors import CommandError

if TYPE_CHECKING:
    from covey.watching.presence import Leader


@click.command()
@click.option("--client", is_flag=True, help="Ask no server.")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), metavar="FORM", help="json or yaml.")
@options.cluster
def version(client: bool, form: str | None, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: ARG001, FBT001 - a flag; -n is taken from everybody
    """Versions of this command, of the operator and the scheduler process that lead, and of the API server."""
    versions: dict[str, Any] = {"clientVersion": __version__}
    problem = None
    if not client:
        try:
            versions |= asyncio.run(_ask(kubeconfig, context))
        except CommandError as error:
            problem = error
    if form == "json":
        echo_json(versions)
    elif form == "yaml":
        echo_yaml([versions])
    else:
        click.echo(f"Client Version: {__version__}")
        for title in ("Operator", "Scheduler", "Server"):
            if version := versions.get(f"{title.lower()}Version"):
                click.echo(f"{title} Version: {version}")
    if problem is not None:
        raise problem


async def _ask(kubeconfig: str | None, context: str | None) -> dict[str, str]:
    """Ask for the versions of the API server and of Covey's processes, as far as leases may be read."""
    from covey.api.constants import LEASE_SCHEDULER, OPERATOR  # noqa: PLC0415 - as below
    from covey.cli.client import connect  # noqa: PLC0415 - the client of the API server, 200 ms, and --client asks none
    from covey.watching.presence import find_leader, read_leases  # noqa: PLC0415 - the same

    async with connect(kubeconfig, context) as client:
        leases = await read_leases(client)
        server = (await client.version()).get("gitVersion", "")
    if leases is None:
        return {"operatorVersion": _UNREADABLE, "schedulerVersion": _UNREADABLE, "serverVersion": server}
    now = time.time()
    operator, scheduler = (_describe(find_leader(leases, name, now)) for name in (OPERATOR, LEASE_SCHEDULER))
    return {"operatorVersion": operator, "schedulerVersion": scheduler, "serverVersion": server}


_UNREADABLE: Final = "unknown (leases may not be read)"


def _describe(leader: Leader | None) -> str:
    # A process that has just started is ready before it leads.
    if leader is None:
        return "none leads (no lease: one that has started takes it in seconds)"
    if leader.is_expired and (not leader.holder or leader.silence is None):
        return "none leads (its lease is held by nobody)"
    if leader.is_expired:
        return f"none leads (its lease was renewed {leader.silence:.0f} s ago)"
    return leader.version or "unknown (an older release)"
