"""The budget of each namespace: as it is stored, and which resources need it.

A resource says in its pass whether it needs the budget; one that has not said so yet may. Where nobody needs it any
more, or somebody has changed it, this wakes those that put it right: the resources put it, the namespace's own turn
deletes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from covey.backends import Identity, Owned
from covey.compile import pod_budget
from covey.kube.reflector import OnEvent
from covey.kube.watch import DELETED, EventType
from covey.operator.model.objects import InferenceText
from covey.operator.model.observed import SHARED_BUDGET, is_shared
from covey.operator.observe.expectations import Expectations
from covey.operator.observe.triggered import Triggered
from covey.operator.observe.watched import Key, Watched


class NamespaceBudgets:
    """The budgets of all namespaces that are watched.

    Args:
        stored: all budgets of Covey's.
        expectations: those that were just created.
        inferences: all resources.
        look_at: adds a resource to the work queue.
        look_at_namespace: has the budget of a namespace looked at.
    """

    def __init__(
        self,
        stored: Watched[Owned],
        expectations: Expectations[Owned],
        inferences: Triggered[InferenceText],
        look_at: Callable[[Key], None],
        look_at_namespace: Callable[[str], None],
    ) -> None:
        self._stored = stored
        self._expectations = expectations
        self._inferences = inferences
        self._look_at = look_at
        self._look_at_namespace = look_at_namespace
        self._needed: dict[Key, bool] = {}

    def find(self, namespace: str) -> Owned | None:
        """The budget of a namespace."""
        budget = self._stored.get((namespace, pod_budget.NAME))
        if budget is not None and is_shared(SHARED_BUDGET[0], budget.metadata):
            return budget
        return next(iter(self._expectations.of(_key(namespace))), None)

    def of(self, namespace: str) -> Mapping[Identity, Owned]:
        """The budget of a namespace, as a snapshot has it; empty without one."""
        budget = self.find(namespace)
        return {} if budget is None else {SHARED_BUDGET: budget}

    def welcome(self, budget: Owned) -> None:
        """Note a budget that this process has just created."""
        self._expectations.add(_key(budget.metadata.namespace), budget)

    def note(self, key: Key, *, needed: bool) -> None:
        """Note whether a resource that has been looked at needs the budget."""
        self._needed[key] = needed
        if not needed:
            self._ask(key[0])

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone, or going."""
        self._needed.pop(key, None)
        self._ask(key[0])

    def is_needed(self, namespace: str) -> bool:
        """Tell whether a resource needs the budget, or may need it, as while the API server does not serve the kind."""
        return not self._inferences.served or any(
            self._needed.get(inference.metadata.key, True)
            for inference in self._inferences.within(namespace)
            if inference.metadata.deletion_timestamp is None
        )

    def take(self, on_news: OnEvent[Owned], kind: EventType, budget: Owned, before: Owned | None) -> None:
        """Pass an event of a budget on; if it is a namespace's, look at the resources that need it."""
        # Its status is written again with every pod that gets Ready, and nobody here reads it.
        if kind != DELETED and before is not None and _is_same(budget, before):
            return
        on_news(kind, budget, before)
        if budget.metadata.name == pod_budget.NAME:
            self._take_shared(budget)

    def _take_shared(self, budget: Owned) -> None:
        namespace = budget.metadata.namespace
        self._expectations.shown(_key(namespace), budget.metadata.uid)
        self._ask(namespace)
        # A resource that needs it makes it again, or goes on now that it is there.
        for inference in self._inferences.within(namespace):
            if self._needed.get(inference.metadata.key):
                self._look_at(inference.metadata.key)

    def _ask(self, namespace: str) -> None:
        if self.find(namespace) is not None and not self.is_needed(namespace):
            self._look_at_namespace(namespace)


def _is_same(now: Owned, before: Owned) -> bool:
    """Tell whether two versions differ only in the status, and in what the API server notes itself."""
    return now.spec == before.spec and all(
        getattr(now.metadata, field) == getattr(before.metadata, field)
        for field in ("uid", "labels", "annotations", "deletion_timestamp", "owner_references")
    )


def _key(namespace: str) -> Key:
    """Key of expectations that belong to no resource."""
    return (namespace, "")
