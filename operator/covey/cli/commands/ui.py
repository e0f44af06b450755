"""``covey ui``."""

from __future__ import annotations

import click

from covey.cli import options
from covey.cli.errors import CommandError
from covey.manifests.errors import InputError


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
@click.option(
    "--open/--no-browser", "browse", default=False, help="Open the page in a browser. Default: print its link."
)
def ui(
    everywhere: bool,  # noqa: FBT001 - a flag
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
    address: str,
    browse: bool,  # noqa: FBT001 - a flag
) -> None:
    """The cluster as a page in the browser, live: every replica in its place, what waits and why, stories, plans.

    Everything is read with the kubeconfig's rights and changed by nobody. The link that is printed is good once; when it is
    used, the next one is printed.
    """
    if everywhere and namespace:
        raise InputError("-A", "means all namespaces, but one is named", "leave out -A, or -n")
    import asyncio  # noqa: PLC0415 - slow to import
    import webbrowser  # noqa: PLC0415 - rarely needed

    from covey.cli.live import in_words  # noqa: PLC0415 - brings the client
    from covey.kube.connection import context_name, load  # noqa: PLC0415 - the same
    from covey.kube.errors import KubeError  # noqa: PLC0415 - the same
    from covey.ui.process import is_loopback, serve_link  # noqa: PLC0415 - a server, only for this command

    opened: list[str] = []

    def announce(link: str) -> None:
        click.echo(link)
        if browse and not opened:
            opened.append(link)
            webbrowser.open(link)

    try:
        if not is_loopback(address):
            click.echo("warning: others can reach this address, and what they send is not encrypted", err=True)
        connection = load(kubeconfig, context)
        cluster = context or context_name(kubeconfig)
        asyncio.run(
            serve_link(connection, address, announce, cluster=cluster, namespaces=(namespace,) if namespace else ())
        )
    except ValueError as error:
        raise InputError("--bind-address", str(error), "write, say, 127.0.0.1:8080") from None
    except KubeError as error:
        raise CommandError(in_words(error)) from None
    except OSError as error:
        raise CommandError(f"cannot listen on {address}: {error.strerror}; check --bind-address") from error
