"""``covey rollout``: how a change of templates comes along, and taking it back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import click

from covey.cli import options
from covey.cli.errors import CommandError, HelpfulGroup
from covey.cli.rolled import Stored, former, history_of, read_state, roles_of

#: Seconds between two looks of ``--watch``.
_PACE: Final = 1.0


@click.group(cls=HelpfulGroup)
def rollout() -> None:
    """Show, pause, resume or undo a rollout."""


@rollout.command()
@click.argument("name")
@click.option("-w", "--watch", is_flag=True, help="Until it has ended; exit status 1 where it has failed.")
@options.cluster
def status(name: str, watch: bool, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: FBT001 - a flag
    """Show how far a rollout is, and what it waits for."""
    asyncio.run(_status(Stored(name, namespace, context, kubeconfig), watch=watch))


@rollout.command()
@click.argument("name")
@options.cluster
def history(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """The revisions that can be gone back to, the newest last."""
    rows = asyncio.run(_history(Stored(name, namespace, context, kubeconfig)))
    click.echo(f"{'REVISION':<10}{'HASH':<12}IMAGES")
    for number, revision, images in rows:
        click.echo(f"{number:<10}{revision:<12}{images}")


@rollout.command()
@click.argument("name")
@click.option("--to-revision", "number", type=int, metavar="N", help="As in the history. Default: the one before.")
@options.cluster
def undo(name: str, number: int | None, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Go back to an earlier revision: templates and sizes only, scale and placement stay."""
    click.echo(asyncio.run(_undo(Stored(name, namespace, context, kubeconfig), number)))


@rollout.command()
@click.argument("name")
@options.cluster
def pause(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Replace nothing more until it is resumed."""
    click.echo(asyncio.run(_set_paused(Stored(name, namespace, context, kubeconfig), paused=True)))


@rollout.command()
@click.argument("name")
@options.cluster
def resume(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Go on with a rollout that was paused."""
    click.echo(asyncio.run(_set_paused(Stored(name, namespace, context, kubeconfig), paused=False)))


async def _status(stored: Stored, *, watch: bool) -> None:
    said = ""
    async with stored.connect() as found:
        while True:
            state = read_state(await found.body())
            if state.text != said:
                said = state.text
                click.echo(said)
            if watch and state.has_failed:
                raise CommandError("the rollout has failed")
            if not watch or state.is_complete:
                return
            await asyncio.sleep(_PACE)


async def _history(stored: Stored) -> list[tuple[int, str, str]]:
    async with stored.connect() as found:
        return [
            (each.number, each.revision.hash, _images(each.revision.roles))
            for each in history_of(await found.records())
        ]


def _images(roles: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={'+'.join(str(each.get('image', '')) for each in role.template_of(1)['spec']['containers'])}"
        for name, role in roles.items()
    )


async def _undo(stored: Stored, number: int | None) -> str:
    async with stored.connect() as found:
        body = await found.body()
        chosen = former(body, history_of(await found.records()), number)
        spec = roles_of(body, chosen.revision)
        await found.patch({"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "spec": spec})
    return f"{stored.name} goes back to revision {chosen.number} ({chosen.revision.hash})"


async def _set_paused(stored: Stored, *, paused: bool) -> str:
    async with stored.connect() as found:
        await found.patch({"spec": {"rollout": {"paused": paused or None}}})
    return f"{stored.name} {'paused' if paused else 'resumed'}"
