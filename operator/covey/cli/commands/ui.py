"""``covey ui``."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable

import click

from covey.cli import options
from covey.cli.errors import CommandError
from covey.cli.live import in_words
from covey.kube.connection import context_name, load, load_server
from covey.kube.errors import KubeError
from covey.manifests.sources import InputError
from covey.observability.logging import configure
from covey.ui.process import is_loopback, serve_link, serve_tokens


@click.command()
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces. The default, if allowed.")
@options.cluster
@click.option(
    "--bind-address",
    "address",
    metavar="ADDRESS",
    default="127.0.0.1:0",
    show_default=True,
    help="Where the page is served; port 0 takes a free one.",
)
@click.option("--open/--no-browser", "browse", default=False, help="Open the link in a browser. Default: print it.")
@click.option(
    "--sign-in",
    is_flag=True,
    help="Serve whoever brings a token for the API server, with that token alone; of the kubeconfig only the address counts.",
)
@click.option(
    "--memory",
    "megabytes",
    metavar="MIB",
    type=int,
    help="What the process may take; a view that has no room is refused.",
)
@click.option("--log-level", default="warning", hidden=True)
@click.option("--log-format", type=click.Choice(("json", "console")), default="console", hidden=True)
def ui(
    everywhere: bool,  # noqa: FBT001 - a flag
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    address: str,
    browse: bool,  # noqa: FBT001 - a flag
    sign_in: bool,  # noqa: FBT001 - a flag
    megabytes: int | None,
    log_level: str,
    log_format: str,
) -> None:
    """The cluster as a page in the browser, live: every replica in its place, what waits and why, stories, plans.

    Everything is read with the kubeconfig's rights, and nothing is changed. The link that is printed is good once; when
    it is used, the next one is printed.
    """
    if everywhere and namespace:
        raise InputError("-A", "means all namespaces, but one is named", "leave out -A, or -n")
    configure(log_level, "json" if log_format == "json" else "console")
    if megabytes is not None:
        size = megabytes << 20
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    if sign_in:
        _run(address, _for_tokens(kubeconfig, context, address))
    else:
        _run(address, _for_one(kubeconfig, context, namespace, address, browse=browse))


async def _for_tokens(kubeconfig: str | None, context: str | None, address: str) -> None:
    await serve_tokens(await load_server(kubeconfig, context), address)


async def _for_one(
    kubeconfig: str | None, context: str | None, namespace: str | None, address: str, *, browse: bool
) -> None:
    opened: list[str] = []

    def announce(link: str) -> None:
        click.echo(link)
        if browse and not opened:
            opened.append(link)
            import webbrowser  # noqa: PLC0415 - only where a person sits, and no part of the image

            webbrowser.open(link)

    if not is_loopback(address):
        click.echo("warning: others can reach this address, and what they send is not encrypted", err=True)
    connection = await load(kubeconfig, context)
    cluster = context or context_name(kubeconfig)
    await serve_link(connection, address, announce, cluster=cluster, namespaces=(namespace,) if namespace else ())


def _run(address: str, work: Awaitable[None]) -> None:
    async def run() -> None:
        await work

    try:
        asyncio.run(run())
    except ValueError as error:
        raise InputError("--bind-address", str(error), "write, say, 127.0.0.1:8080") from None
    except KubeError as error:
        raise CommandError(in_words(error)) from None
    except OSError as error:
        raise CommandError(f"cannot listen on {address}: {error.strerror}; check --bind-address") from error
