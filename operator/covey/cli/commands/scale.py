"""``covey scale``: another number of replicas for roles, wherever that number is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import click

from covey.cli import options
from covey.cli.commands.exchange import Change, change_targets, change_together, parse_change
from covey.cli.errors import CommandError
from covey.cli.rollout_state import ResourceClient, ResourceReference
from covey.compile.identity import scaler_name
from covey.kube.client import Ignored
from covey.kube.errors import NotFound
from covey.kube.resources import ROLE_SCALERS
from covey.manifests.errors import InputError


@click.command()
@click.argument("name")
@click.argument("changes", nargs=-1, required=True, metavar="ROLE=[+|-]NUMBER...")
@click.option("--dry-run", is_flag=True, help="Have the API server judge it, and store nothing.")
@click.option(
    "--timeout",
    type=click.FloatRange(1),
    default=60.0,
    metavar="SECONDS",
    help="For the judgement of roles that are scaled together. Default: 60.",
)
@options.cluster
def scale(
    name: str,
    changes: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 - a flag
    timeout: float,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Set how many replicas roles have: decode=4, or two more with decode=+2.

    Of a role with scaling.mode External the number is summed over all units and goes to its RoleScaler, of which an
    autoscaler may make another one; of roles with Together it is one exchange, taken as a whole or not at all; of all
    others it is spec.roles[].replicas, in each unit. Whole units are scaled by `kubectl scale dinf NAME --replicas=N`.
    """
    parsed = [parse_change(text) for text in changes]
    asyncio.run(_scale(ResourceReference(name, namespace, context, kubeconfig), parsed, timeout, dry_run=dry_run))


def by_mode(roles: Sequence[Mapping[str, Any]], changes: Sequence[Change]) -> dict[str, list[Change]]:
    """Sort changes by the ``scaling.mode`` of their roles.

    Raises:
        InputError: there is no such role.
    """
    modes = {role["name"]: (role.get("scaling") or {}).get("mode", "Static") for role in roles}
    sorted_changes: dict[str, list[Change]] = {"Static": [], "External": [], "Together": []}
    for change in changes:
        if change[0] not in modes:
            raise InputError(change[0], "is no role of it", f"name one of {', '.join(modes)}")
        sorted_changes[modes[change[0]]].append(change)
    if sum(map(bool, sorted_changes.values())) > 1:
        what = "are kept in different places (scaling.mode), and cannot be changed in one step"
        raise InputError(", ".join(role for role, _, _ in changes), what, "scale them one after the other")
    return sorted_changes


async def _scale(
    stored: ResourceReference,
    changes: Sequence[Change],
    timeout: float,  # noqa: ASYNC109 - of the judgement, not of this call
    *,
    dry_run: bool,
) -> None:
    async with stored.connect() as resource:
        body = await resource.body()
        sorted_changes = by_mode(body["spec"]["roles"], changes)
        if sorted_changes["Together"]:
            message, fits = await change_together(resource, changes, timeout, dry_run=dry_run)
            click.echo(message)
            if not fits:
                raise CommandError("the targets are not in force, and nothing has moved for them")
        for change in sorted_changes["External"]:
            click.echo(await _scale_external(resource, change, dry_run=dry_run))
        if sorted_changes["Static"]:
            click.echo(await _scale_spec(resource, body, changes, dry_run=dry_run))


async def _scale_spec(
    resource: ResourceClient, body: Mapping[str, Any], changes: Sequence[Change], *, dry_run: bool
) -> str:
    roles = [dict(role) for role in body["spec"]["roles"]]
    before = {role["name"]: role.get("replicas", 1) for role in roles}
    targets = change_targets(before, changes)
    patch = {
        "metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
        "spec": {"roles": [role | {"replicas": targets[role["name"]]} for role in roles]},
    }
    await resource.patch(patch, dry_run=dry_run)
    units = body["spec"].get("replicas", 1)
    per_unit = f" in each of {units} units" if units > 1 else ""
    return "\n".join(
        _describe(resource.name, role, before[role], targets[role], dry_run=dry_run) + per_unit
        for role, _, _ in changes
    )


async def _scale_external(resource: ResourceClient, change: Change, *, dry_run: bool) -> str:
    role = change[0]
    name = scaler_name(resource.name, role)
    try:
        scaler = await resource.client.get(ROLE_SCALERS, name, resource.namespace)
    except NotFound:
        what = f"there is no RoleScaler {resource.namespace}/{name} yet"
        raise CommandError(f"{what}; see whether the operator runs: covey explain {resource.name}") from None
    before = scaler["spec"]["replicas"]
    target = change_targets({role: before}, [change])[role]
    patch = {
        "metadata": {"resourceVersion": scaler["metadata"]["resourceVersion"]},
        "spec": {"replicas": target},
    }
    await resource.client.merge_patch(ROLE_SCALERS, name, resource.namespace, patch, dry_run=dry_run, type=Ignored)
    return _describe(resource.name, role, before, target, dry_run=dry_run) + " over all units"


def _describe(name: str, role: str, before: int, target: int, *, dry_run: bool) -> str:
    return f"{name}: {role} {before} -> {target}{' (dry run)' if dry_run else ''}"
