"""The budget of a namespace belongs to nobody: made for the first resource, deleted after the last, made again meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Owned
from covey.compile import pod_budget
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.errors import AlreadyExists
from covey.kube.events import EventRecorder
from covey.kube.resources import POD_DISRUPTION_BUDGETS, Resource
from covey.operator.execute.put import BudgetEnder
from covey.operator.model.observed import SHARED_BUDGET
from covey.operator.reconcile import Reconciler
from covey.operator.status.gauges import WorkloadGauges
from unit.operator.seen import Seen
from unit.operator.test_execute import OWNER, Server, execute
from unit.operator.world import World

BUDGET = msgspec.convert(
    {**pod_budget.namespace_budget("ml"), "metadata": {**pod_budget.namespace_budget("ml")["metadata"], "uid": "b-1"}},
    Owned,
)


class Budgeted(Seen):
    """Caches that are shown resources, and the budget of their namespace."""

    def show(self, name: str, **meta: Any) -> None:
        self.tell(self.caches.inferences, name, "ADDED", texts={"status": {}}, **meta)

    def store(self, item: Owned = BUDGET, kind: str = "MODIFIED", **meta: Any) -> None:
        changed = msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, **meta))
        self.watch(self.caches.objects[POD_DISRUPTION_BUDGETS.type], changed, kind)


@pytest.fixture
def seen() -> Budgeted:
    return Budgeted()


def test_a_budget_that_a_former_leader_left_behind_is_looked_at(seen: Budgeted) -> None:
    seen.show("one", namespace="other")
    seen.store()
    assert seen.namespaces == ["ml"]


def test_who_needs_it_is_woken_where_somebody_has_taken_or_changed_it(seen: Budgeted) -> None:
    for name, needed in (("one", True), ("router", False)):
        seen.show(name)
        seen.caches.budgets.note(("ml", name), needed=needed)
    seen.store()
    seen.looks.clear()
    # The disruption controller has counted pods.
    seen.store(resource_version="7")
    assert seen.asked == []
    seen.store(labels={**pod_budget.LABELS, "theirs": "yes"})
    assert seen.asked == [("ml", "one")]
    seen.store(kind="DELETED")
    assert seen.asked == [("ml", "one")]


def test_who_waits_for_it_is_woken_when_it_comes(seen: Budgeted) -> None:
    """A plan that was to make it was not finished; one with a former release's budget goes on to the next step."""
    for name, needed in (("llama", True), ("router", False)):
        seen.show(name)
        seen.caches.budgets.note(("ml", name), needed=needed)
    seen.looks.clear()
    seen.store()
    assert seen.asked == [("ml", "llama")]


class Deletions:
    """Takes deletions, or refuses them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self._error = error

    async def delete(self, _: Resource, name: str, namespace: str, *, uid: str) -> None:
        self.asked.append((namespace, name, uid))
        if self._error is not None:
            raise self._error


def ender(server: Deletions, found: Owned | None = BUDGET, *, needed: bool = False) -> BudgetEnder:
    return BudgetEnder(cast("Client", server), lambda _: found, lambda _: needed)


async def test_this_incarnation_is_deleted_where_nobody_needs_it() -> None:
    server = Deletions()
    await ender(server)("ml")
    await ender(server, needed=True)("ml")
    await ender(server, None)("ml")
    assert server.asked == [("ml", "covey-gangs", "b-1")]


class Taken(Server):
    """Has a budget of this name that the watch has not shown."""

    def __init__(self, world: World, labels: Mapping[str, str]) -> None:
        super().__init__(world)
        self._labels = labels
        self.applied: list[str] = []

    async def create(self, resource: Resource, body: Mapping[str, Any], *more: Any, **options: Any) -> Any:
        if body["metadata"]["name"] == pod_budget.NAME:
            raise AlreadyExists(409, "AlreadyExists", pod_budget.NAME)
        return await super().create(resource, body, *more, **options)

    async def get(self, _: Resource, name: str, *__: Any, type: Any = None, **___: Any) -> Any:  # noqa: A002 - Client's
        body = pod_budget.namespace_budget("ml")
        return msgspec.convert({**body, "metadata": {"name": name, "uid": "b-1", "labels": self._labels}}, type)

    async def json_patch(self, *_: Any, **__: Any) -> None:
        """Nothing was written by creating it."""

    async def apply(self, _: Resource, body: Mapping[str, Any], **__: Any) -> Any:
        self.applied.append(body["metadata"]["name"])
        return BUDGET


async def test_one_that_another_worker_has_made_is_taken() -> None:
    world = World(inference(role("decode")))
    server = Taken(world, pod_budget.LABELS)
    await execute(world, server)
    assert server.applied == [pod_budget.NAME]


def test_pods_of_a_large_cluster_do_not_all_get_it_in_one_pass(seen: Budgeted) -> None:
    world = World.settled(inference(role("decode", replicas=70)))
    for name in list(world.pods):
        world.label(name, {names.LABEL_GANG: None})
    actions = world.plan().actions
    reconciler = Reconciler(
        cast("Client", None),
        seen.caches,
        cast("EventRecorder", None),
        cast("WorkloadGauges", None),
        clock=SYSTEM,
        features=(),
    )
    seen.looks.clear()
    assert [len(each.protect) for each in (actions, reconciler._limit_protections(("ml", "llama"), actions))] == [
        70,
        50,
    ]
    assert seen.asked == [("ml", "llama")]


def wanted(**router: Any) -> DisaggregatedInference:
    return inference(role("prefill", size=2), role("decode"), role("router", **{"minReplicas": 0, **router}))


@pytest.fixture
def world() -> World:
    """A resource that serves."""
    return World.serving(wanted())


def test_one_that_was_just_made_counts_before_the_watch_shows_it(seen: Budgeted) -> None:
    assert seen.caches.observe(OWNER, 0.0).shared == {}
    seen.caches.welcome_object(("ml", "llama"), SHARED_BUDGET[0], BUDGET)
    assert seen.caches.observe(OWNER, 0.0).shared == {SHARED_BUDGET: BUDGET}
    seen.store()
    seen.store(kind="DELETED")
    assert seen.caches.observe(OWNER, 0.0).shared == {}
