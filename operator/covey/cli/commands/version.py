"""``covey version``."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from covey import __version__
from covey.cli import options
from covey.cli.data import echo_json, echo_yaml
from covey.cli.errors import CommandError


@click.command()
@click.option("--client", is_flag=True, help="Ask no server.")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), metavar="FORM", help="json or yaml.")
@options.cluster
def version(client: bool, form: str | None, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: ARG001, FBT001 - a flag; -n is taken from everybody
    """Client and server versions."""
    found: dict[str, Any] = {"clientVersion": __version__}
    problem = None
    if not client:
        from covey.cli.live import connect  # noqa: PLC0415 - the client of the API server, 200 ms, and --client asks none

        async def ask() -> dict[str, Any]:
            async with connect(kubeconfig, context) as server:
                return await server.version()

        try:
            found["serverVersion"] = asyncio.run(ask()).get("gitVersion", "")
        except CommandError as error:
            problem = error
    if form == "json":
        echo_json(found)
    elif form == "yaml":
        echo_yaml([found])
    else:
        click.echo(f"Client Version: {__version__}")
        if "serverVersion" in found:
            click.echo(f"Server Version: {found['serverVersion']}")
    if problem is not None:
        raise problem
