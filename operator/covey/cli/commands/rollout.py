"""``covey rollout``: how a change of templates comes along, and taking it back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from covey.cli import options
from covey.cli.errors import CommandError
from covey.cli.rollout_state import ResourceReference, former, history_of, read_state, roles_of
from covey.cli.usage_errors import HelpfulGroup
from covey.manifests.errors import InputError

#: Seconds between two looks of ``--watch``.
_PACE: Final = 1.0
#: What ``kubectl rollout restart`` sets.
_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"


@click.group(cls=HelpfulGroup)
def rollout() -> None:
    """Show, pause, resume, undo or restart a rollout."""


@rollout.command()
@click.argument("name")
@click.option("-w", "--watch", is_flag=True, help="Until it has ended; exit status 1 where it has failed.")
@options.cluster
def status(name: str, watch: bool, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:  # noqa: FBT001 - a flag
    """Show how far a rollout is, and what it waits for."""
    asyncio.run(_status(ResourceReference(name, namespace, context, kubeconfig), watch=watch))


@rollout.command()
@click.argument("name")
@options.cluster
def history(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """The revisions that can be gone back to, the newest last."""
    rows = asyncio.run(_history(ResourceReference(name, namespace, context, kubeconfig)))
    click.echo(f"{'REVISION':<10}{'HASH':<12}IMAGES")
    for number, revision, images in rows:
        click.echo(f"{number:<10}{revision:<12}{images}")


@rollout.command()
@click.argument("name")
@click.option("--to-revision", "number", type=int, metavar="N", help="As in the history. Default: the one before.")
@options.cluster
def undo(name: str, number: int | None, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Go back to an earlier revision: templates and sizes only, scale and placement stay."""
    click.echo(asyncio.run(_undo(ResourceReference(name, namespace, context, kubeconfig), number)))


@rollout.command()
@click.argument("name")
@options.cluster
def pause(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Replace nothing more until it is resumed."""
    click.echo(asyncio.run(_set_paused(ResourceReference(name, namespace, context, kubeconfig), paused=True)))


@rollout.command()
@click.argument("name")
@options.cluster
def resume(name: str, namespace: str | None, context: str | None, kubeconfig: str | None) -> None:
    """Go on with a rollout that was paused."""
    click.echo(asyncio.run(_set_paused(ResourceReference(name, namespace, context, kubeconfig), paused=False)))


@rollout.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Of these alone; repeatable. Default: of all.")
@options.cluster
def restart(
    name: str, roles: tuple[str, ...], namespace: str | None, context: str | None, kubeconfig: str | None
) -> None:
    """Replace all replicas by new ones of the same templates, as a rollout within its budgets.

    It is a new revision: an annotation of the templates, kubectl.kubernetes.io/restartedAt, has the time.
    """
    click.echo(asyncio.run(_restart(ResourceReference(name, namespace, context, kubeconfig), roles)))


async def _status(stored: ResourceReference, *, watch: bool) -> None:
    printed = ""
    async with stored.connect() as resource:
        while True:
            state = read_state(await resource.body())
            if state.text != printed:
                printed = state.text
                click.echo(printed)
            if watch and state.has_failed:
                raise CommandError("the rollout has failed")
            if not watch or state.is_complete:
                return
            await asyncio.sleep(_PACE)


async def _history(stored: ResourceReference) -> list[tuple[int, str, str]]:
    async with stored.connect() as resource:
        return [
            (entry.number, entry.revision.hash, _images(entry.revision.roles))
            for entry in history_of(await resource.records())
        ]


def _images(roles: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={'+'.join(str(container.get('image', '')) for container in role.template_of(1)['spec']['containers'])}"
        for name, role in roles.items()
    )


async def _undo(stored: ResourceReference, number: int | None) -> str:
    async with stored.connect() as resource:
        body = await resource.body()
        chosen = former(body, history_of(await resource.records()), number)
        spec = roles_of(body, chosen.revision)
        await resource.patch({"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "spec": spec})
    return f"{stored.name} goes back to revision {chosen.number} ({chosen.revision.hash})"


async def _set_paused(stored: ResourceReference, *, paused: bool) -> str:
    async with stored.connect() as resource:
        await resource.patch({"spec": {"rollout": {"paused": paused or None}}})
    return f"{stored.name} {'paused' if paused else 'resumed'}"


async def _restart(stored: ResourceReference, names: Sequence[str]) -> str:
    async with stored.connect() as resource:
        body = await resource.body()
        roles = restarted(body["spec"]["roles"], names, datetime.now(UTC).isoformat(timespec="seconds"))
        await resource.patch(
            {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "spec": {"roles": roles}}
        )
    return f"{stored.name} restarted: {', '.join(names) or 'all roles'}"


def restarted(roles: Sequence[Mapping[str, Any]], names: Sequence[str], now: str) -> list[dict[str, Any]]:
    """Give the templates of roles, or of all where none is named, the annotation that makes them a new revision.

    Args:
        roles: of the spec.
        names: of the roles; empty for all.
        now: its value, a time.

    Raises:
        InputError: there is no such role.
    """
    unknown = set(names) - {role["name"] for role in roles}
    if unknown:
        raise InputError(min(unknown), "is no role of it", f"name one of {', '.join(role['name'] for role in roles)}")
    return [
        {
            key: _annotated(value, now) if key in {"template", "leaderTemplate"} and value else value
            for key, value in role.items()
        }
        if not names or role["name"] in names
        else dict(role)
        for role in roles
    ]


def _annotated(template: Mapping[str, Any], now: str) -> dict[str, Any]:
    metadata = dict(template.get("metadata") or {})
    annotations = {**(metadata.get("annotations") or {}), _RESTARTED_AT: now}
    return {**template, "metadata": metadata | {"annotations": annotations}}
