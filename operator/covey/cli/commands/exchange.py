"""``covey exchange``: other numbers of replicas for roles that are scaled together, as a whole or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from covey.api.constants import COMMITTED
from covey.api.exchange import describe_vector
from covey.cli import options
from covey.cli.errors import CommandError
from covey.cli.rollout_state import ResourceClient, ResourceReference
from covey.kube.client import Ignored
from covey.kube.errors import NotFound
from covey.kube.resources import ROLE_SCALERS
from covey.manifests.errors import InputError
from covey.operator.scaling.exchange import REASON_JUDGING, together_name

#: Seconds between two looks.
_PACE: Final = 0.3
#: A role, a number, and whether it is added to what is asked for.
Change = tuple[str, int, bool]
_CHANGE: Final = re.compile(r"([a-z0-9]([a-z0-9-]*[a-z0-9])?)=([+-]?)(\d{1,5})")


@click.command()
@click.argument("name")
@click.argument("changes", nargs=-1, metavar="ROLE=[+|-]NUMBER...")
@click.option("--timeout", type=click.FloatRange(1), default=60.0, metavar="SECONDS", help="Default: 60.")
@options.cluster
def exchange(
    name: str,
    changes: tuple[str, ...],
    timeout: float,
    namespace: str | None,
    context: str | None,
    kubeconfig: str | None,
) -> None:
    """Exchange replicas of one role for those of another, as a whole or not at all.

    The numbers are summed over all units: prefill=6 is that many, prefill=-1 one fewer than asked for now. Without any it
    shows the vector. It prints the judgement, and fails where the vector does not fit; nothing has moved then.
    """
    parsed = [parse_change(change) for change in changes]
    stored = ResourceReference(name, namespace, context, kubeconfig)
    text, fits = asyncio.run(_exchange(stored, parsed, timeout))
    click.echo(text)
    if not fits:
        raise CommandError("the targets are not in force, and nothing has moved for them")


def parse_change(text: str) -> Change:
    """Read ``prefill=-1``: the role, the number, and whether it is added to what is asked for.

    Raises:
        InputError: it cannot be read.
    """
    match = _CHANGE.fullmatch(text)
    if match is None:
        raise InputError(text, "is no change", "write ROLE=NUMBER, ROLE=+NUMBER or ROLE=-NUMBER")
    role, _, sign, digits = match.groups()
    return role, int(digits) * (-1 if sign == "-" else 1), bool(sign)


def change_targets(targets: Mapping[str, int], changes: Sequence[Change]) -> dict[str, int]:
    """Apply changes to a vector.

    Raises:
        InputError: a role is not scaled together with others, or would have fewer than no replicas.
    """
    changed = dict(targets)
    for role, number, is_relative in changes:
        if role not in targets:
            raise InputError(role, "is not scaled together with others", f"name one of {', '.join(sorted(targets))}")
        changed[role] = number + (changed[role] if is_relative else 0)
        if changed[role] < 0:
            raise InputError(role, f"would have {changed[role]} replicas", "take fewer away")
    return changed


async def _exchange(
    stored: ResourceReference,
    changes: Sequence[Change],
    timeout: float,  # noqa: ASYNC109 - of the judgement, not of this call
) -> tuple[str, bool]:
    async with stored.connect() as resource:
        return await change_together(resource, changes, timeout)


async def change_together(
    resource: ResourceClient,
    changes: Sequence[Change],
    timeout: float,  # noqa: ASYNC109 - of the judgement, not of this call
    *,
    dry_run: bool = False,
) -> tuple[str, bool]:
    """Write another vector, and wait for its judgement; with ``dry_run`` nothing is stored, and nobody judges.

    Returns:
        The judgement in a line, and whether the vector is in force.

    Raises:
        CommandError: nobody has judged it within the timeout.
        InputError: a role is not scaled together with others.
    """
    body = await _read(resource)
    generation = body["metadata"]["generation"]
    if changes:
        targets = change_targets(body["spec"].get("targets") or {}, changes)
        # A vector that somebody else has written meanwhile is not to be overwritten by one that was made from another.
        patch = {"metadata": {"resourceVersion": body["metadata"]["resourceVersion"]}, "spec": {"targets": targets}}
        scaler = together_name(resource.name)
        await resource.client.merge_patch(
            ROLE_SCALERS, scaler, resource.namespace, patch, dry_run=dry_run, type=Ignored
        )
        if dry_run:
            return (
                f"{describe_vector(targets)}: the API server takes it (dry run); nobody has judged whether it fits",
                True,
            )
        generation = (await _read(resource))["metadata"]["generation"]
    try:
        async with asyncio.timeout(timeout):
            return await _judgement(resource, generation)
    except TimeoutError:
        what = f"no judgement within {timeout:g} s"
        raise CommandError(f"{what}; see whether the operator and the scheduler process run") from None


async def _judgement(resource: ResourceClient, generation: int) -> tuple[str, bool]:
    while True:
        body = await _read(resource)
        committed = next(
            (condition for condition in _status(body).get("conditions") or () if condition["type"] == COMMITTED), None
        )
        if (
            committed is not None
            and committed["observedGeneration"] >= generation
            and committed["reason"] != REASON_JUDGING
        ):
            return describe_judgement(body, committed), committed["status"] == "True"
        await asyncio.sleep(_PACE)


def describe_judgement(body: Mapping[str, Any], condition: Mapping[str, Any]) -> str:
    """``prefill=6,decode=2: Draining: in force; ...``, and what is in force where that is another vector."""
    targets, committed = body["spec"].get("targets") or {}, _status(body).get("committed") or {}
    line = f"{describe_vector(targets)}: {condition['reason']}: {condition['message']}"
    return line if targets == committed else f"{line}\nin force: {describe_vector(committed)}"


def _status(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return body.get("status") or {}


async def _read(resource: ResourceClient) -> dict[str, Any]:
    await resource.body()
    try:
        return dict(await resource.client.get(ROLE_SCALERS, together_name(resource.name), resource.namespace))
    except NotFound:
        what = f"{resource.namespace}/{resource.name} has no roles that are scaled together"
        raise CommandError(f"{what}; set spec.roles[].scaling.mode to Together on two roles at least") from None
