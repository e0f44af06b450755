"""A resource's rollout as the cluster has it: its state, its revisions, and what would bring one of them back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from covey.api import constants as names
from covey.cli.client import connect
from covey.cli.errors import CommandError
from covey.compile.revision import Revision
from covey.kube.client import Client, Ignored
from covey.kube.errors import NotFound
from covey.kube.resources import DISAGGREGATED_INFERENCES
from covey.manifests.errors import InputError
from covey.operator.model.accepted import read_record, with_rolled
from covey.operator.model.objects import CONTROLLER_REVISIONS, ControllerRevision

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResourceClient:
    """One resource of a cluster that answers."""

    client: Client
    name: str
    namespace: str

    async def body(self) -> Body:
        """The resource as stored."""
        try:
            return await self.client.get(DISAGGREGATED_INFERENCES, self.name, self.namespace)
        except NotFound:
            what = f"there is no DisaggregatedInference {self.namespace}/{self.name}"
            raise CommandError(f"{what}; is -n the right one?") from None

    async def records(self) -> list[ControllerRevision]:
        """Its ControllerRevisions."""
        labels = f"{names.LABEL_INFERENCE}={self.name}"
        items, _ = await self.client.list(CONTROLLER_REVISIONS, self.namespace, labels=labels, type=ControllerRevision)
        return items

    async def patch(self, change: Body, *, dry_run: bool = False) -> None:
        """Change the resource; with ``dry_run`` everything but storing it."""
        await self.body()
        kind = DISAGGREGATED_INFERENCES
        await self.client.merge_patch(kind, self.name, self.namespace, change, dry_run=dry_run, type=Ignored)


@dataclass(frozen=True, slots=True)
class ResourceReference:
    """A stored resource, and its cluster."""

    name: str
    namespace: str | None
    context: str | None
    kubeconfig: str | None

    @asynccontextmanager
    async def connect(self, connections: int = 8) -> AsyncIterator[ResourceClient]:
        """Find it, with so many connections at the most.

        Raises:
            CommandError: the cluster does not answer.
            InputError: the name is empty.
        """
        name = self.name.rpartition("/")[2]  # kubectl prints and takes KIND/NAME
        if not name:
            raise InputError("NAME", "is empty", "give the name of a DisaggregatedInference")
        async with connect(self.kubeconfig, self.context, connections) as client:
            yield ResourceClient(client, name, self.namespace or client.namespace)


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state of a rollout."""

    text: str
    is_complete: bool = False
    has_failed: bool = False


def read_state(body: Body) -> RolloutState:
    """Read the state of a rollout from a resource's status."""
    status = body.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    progressing = conditions.get(names.PROGRESSING)
    if progressing is None or status.get("observedGeneration") != body["metadata"]["generation"]:
        return RolloutState("the operator has not seen this spec yet")
    is_complete = progressing["status"] == "True" and progressing["reason"] == "Complete"
    return RolloutState(str(progressing["message"]), is_complete, progressing["status"] == "False")


@dataclass(frozen=True, slots=True)
class NumberedRevision:
    """A revision that is stored."""

    number: int
    revision: Revision


def history_of(stored: Sequence[ControllerRevision]) -> list[NumberedRevision]:
    """The revisions that this release can read, the oldest first; of those that differ in scale alone there is one."""
    by_number: dict[int, NumberedRevision] = {}
    for item in sorted(stored, key=lambda item: item.revision):
        record = read_record(item.data)
        if record is not None:
            by_number[item.shown_number] = NumberedRevision(item.shown_number, record.revision)
    return sorted(by_number.values(), key=lambda revision: revision.number)


def former(body: Body, history: Sequence[NumberedRevision], number: int | None) -> NumberedRevision:
    """The revision to go back to: one of this number, or the newest that is not what the spec asks for.

    Raises:
        CommandError: there is none.
    """
    if number is not None:
        chosen = next((candidate for candidate in history if candidate.number == number), None)
        if chosen is None:
            raise CommandError(f"there is no revision {number}; see covey rollout history {body['metadata']['name']}")
        return chosen
    wanted = {role["name"]: role for role in body["spec"]["roles"]}
    for candidate in reversed(history):
        roles = {role["name"]: role for role in roles_of(body, candidate.revision)["roles"]}
        if any(_differ(roles[name], wanted[name]) for name in wanted):
            return candidate
    raise CommandError("there is no earlier revision to go back to")


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    fields = (("template", None), ("leaderTemplate", None), ("size", 1))
    return any(one.get(key, default) != other.get(key, default) for key, default in fields) or (
        _subdomain(one) != _subdomain(other)
    )


def _subdomain(role: Mapping[str, Any]) -> str:
    return (role.get("network") or {}).get("subdomain") or "Shared"


def roles_of(body: Body, revision: Revision) -> dict[str, Any]:
    """The part of the spec that brings a revision back: all roles, as the list is one value, with its rolled fields."""
    spec = with_rolled(body["spec"], revision)
    return {"roles": spec["roles"], "compat": spec["compat"]}
