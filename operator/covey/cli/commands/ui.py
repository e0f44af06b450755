"""``covey ui``."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Coroutine
from typing import Any

import click

from covey.cli.client import in_words
from covey.cli.errors import CommandError
from covey.cli.settings import load_settings, options
from covey.kube.connection import context_name, load, load_server
from covey.kube.errors import KubeError
from covey.observability.addresses import is_loopback
from covey.observability.logging import configure
from covey.ui.process import serve_link, serve_tokens
from covey.ui.settings import PageSettings


@click.command()
@options(PageSettings)
def ui(**flags: Any) -> None:
    """The cluster as a page in the browser, live: every replica in its place, what waits and why, stories, plans.

    Everything is read with the kubeconfig's rights, and nothing is changed. The link that is printed is good once; when
    it is used, the next one is printed.
    """
    settings = load_settings(PageSettings, flags)
    configure(settings.log_level, settings.log_format)
    if settings.memory is not None:
        size = settings.memory << 20
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    _run(settings.bind_address, _serve_tokens(settings) if settings.sign_in else _serve_link(settings))


async def _serve_tokens(settings: PageSettings) -> None:
    await serve_tokens(await load_server(settings.kubeconfig, settings.context), settings.bind_address)


async def _serve_link(settings: PageSettings) -> None:
    opened: list[str] = []

    def announce(link: str) -> None:
        click.echo(link)
        if settings.open and not opened:
            opened.append(link)
            import webbrowser  # noqa: PLC0415 - only where a person sits, and no part of the image

            webbrowser.open(link)

    if not is_loopback(settings.bind_address):
        click.echo("warning: others can reach this address, and what they send is not encrypted", err=True)
    connection = await load(settings.kubeconfig, settings.context)
    cluster = settings.context or context_name(settings.kubeconfig)
    await serve_link(connection, settings.bind_address, announce, cluster=cluster, namespaces=settings.namespaces)


def _run(address: str, work: Coroutine[Any, Any, None]) -> None:
    try:
        asyncio.run(work)
    except KubeError as error:
        raise CommandError(in_words(error)) from None
    except OSError as error:
        raise CommandError(f"cannot listen on {address}: {error.strerror}; check --bind-address") from error
