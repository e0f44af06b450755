"""The ResourceQuotas of namespaces, and the turns in which resources of one namespace create pods.

The API server adds a pod to ``status.used`` before it answers its creation. So a resource that lists the quotas in its
turn, and is the only one that creates meanwhile, sees all that was created before: nothing has to be remembered of it.
Where a namespace has no quota there are no turns.

Two things *are* remembered: resources that wait for quota, so that a change of one wakes them, and pods of minimums
that run and have found none, so that no other resource takes their room. After a restart both are known again once each
resource of the namespace has been looked at; before that only running minimums are created there. The same goes for a
moment after room has come free: the resource whose pod has ended, and freed it, is to be looked at first.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import JOBS, LIMIT_RANGES, RESOURCE_QUOTAS
from covey.kube.watch import DELETED, EventType
from covey.operator.observe.devices import read_charges
from covey.operator.observe.watched import Key, Watched
from covey.operator.resource_quota.balance import Balance, Demand, QuotaShortage, merge_demands
from covey.operator.resource_quota.charge import PodCharge, charge_of
from covey.placement.cluster.resources import parse_quantity

_NAMESPACE: Final = "namespace"
#: Seconds that room has to be free before it goes to anybody but a minimum that runs.
REST: Final = 0.3
#: Seconds after which nobody is kept waiting for that: somewhere pods may end all the time.
_PATIENCE: Final = 3.0


class NamespaceQuotas:
    """A copy of all ResourceQuotas and LimitRanges.

    Args:
        client: to the API server.
        namespaces: where to look; empty means everywhere.
        enqueue_after: called with the key of a resource that has to be looked at, and in how many seconds.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        enqueue_after: Callable[[Key, float], None],
        clock: Clock,
    ) -> None:
        self._client = client
        self._enqueue_after = enqueue_after
        self._quotas = Watched(client, RESOURCE_QUOTAS, core.ResourceQuota, namespaces, clock=clock)
        self._ranges = Watched(client, LIMIT_RANGES, core.LimitRange, namespaces, clock=clock)
        for reflector in self.reflectors:
            reflector.add_index(_NAMESPACE, lambda item: (item.metadata.namespace,))
        self._quotas.subscribe(self._on_quota)
        self._ranges.subscribe(self._on_range)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: Resources that were looked at, those that wait and what wakes them, and the pods that come first, by namespace.
        self._seen: dict[str, set[Key]] = {}
        self._settled: set[str] = set()
        self._waiting: dict[str, dict[Key, Callable[[float], None]]] = {}
        self._first: dict[str, dict[Key, Demand]] = {}
        self._clock = clock.monotonic
        #: Amounts last known to be taken, when some last came free, and since when a resource is kept waiting for that.
        self._used: dict[Key, Mapping[str, Any]] = {}
        self._freed: dict[str, float] = {}
        self._kept: dict[Key, float] = {}

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Watches of ResourceQuotas and LimitRanges."""
        return [*self._quotas.reflectors, *self._ranges.reflectors]

    def of(self, namespace: str) -> tuple[core.ResourceQuota, ...]:
        """The quotas of a namespace, as the watch shows them."""
        return tuple(
            quota for reflector in self._quotas.reflectors for quota in reflector.by_index(_NAMESPACE, namespace)
        )

    def ranges(self, namespace: str) -> tuple[core.LimitRange, ...]:
        """The LimitRanges of a namespace."""
        return tuple(
            limits for reflector in self._ranges.reflectors for limits in reflector.by_index(_NAMESPACE, namespace)
        )

    def reserved_demand(self, key: Key) -> Demand:
        """The pods of other resources of the namespace that come first."""
        return merge_demands(demand for other, demand in self._first.get(key[0], {}).items() if other != key)

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, *, wanted: bool) -> AsyncIterator[tuple[core.ResourceQuota, ...] | None]:
        """Be the only resource that creates pods in a namespace, with its quotas as they are then.

        Args:
            namespace: its name.
            wanted: there are pods to create. Without, and where there is no quota, there is no turn: None.
        """
        if not wanted or not self.of(namespace):
            yield None
            return
        async with self._turns.setdefault(namespace, asyncio.Lock()):
            quotas, _ = await self._client.list(RESOURCE_QUOTAS, namespace, type=core.ResourceQuota)
            for quota in quotas:
                self._compare(quota)
            yield tuple(quotas)

    def note(self, key: Key, *, waits: bool, first: Demand | None, wake: Callable[[float], None] | None = None) -> None:
        """Note whether a resource waits for quota, and its pods that come first.

        Args:
            key: its namespace and name.
            waits: quotas have no room for some of its pods.
            first: those of them that come before other resources' pods.
            wake: has it looked at in some seconds, where that is no matter of a DisaggregatedInference.
        """
        self._drop(key)
        if waits:
            self._waiting.setdefault(key[0], {})[key] = wake or partial(self._enqueue_after, key)
        if first:
            self._first.setdefault(key[0], {})[key] = first

    def settles(self, namespace: str, keys: Iterable[Key]) -> bool:
        """Tell whether one of these resources has not been looked at yet since this process began to lead.

        It may have lost a pod of a minimum that runs, which comes first.
        """
        if namespace in self._settled:
            return False
        seen = self._seen.get(namespace, set())
        if any(key[0] == namespace and key not in seen for key in keys):
            return True
        # No resource that comes later runs already.
        self._settled.add(namespace)
        self._seen.pop(namespace, None)
        return False

    def rests(self, key: Key) -> bool:
        """Tell whether room of the namespace has come free just now, and others may have to have it."""
        now = self._clock()
        free = now - self._freed.get(key[0], -REST) >= REST
        if free or now - self._kept.setdefault(key, now) >= _PATIENCE:
            self._kept.pop(key, None)
            return False
        return True

    def _compare(self, quota: core.ResourceQuota) -> None:
        """Note that room has come free, where less is used than before."""
        before, now = self._used.get(quota.metadata.key, {}), quota.status.used or {}
        if any(parse_quantity(now[name]) < parse_quantity(value) for name, value in before.items() if name in now):
            self._freed[quota.metadata.namespace] = self._clock()
        self._used[quota.metadata.key] = now

    def note_look(self, key: Key) -> None:
        """Note that a resource has been looked at, whatever came of it."""
        if key[0] not in self._settled:
            self._seen.setdefault(key[0], set()).add(key)

    def forget(self, key: Key) -> None:
        """Forget a resource that is gone."""
        self._kept.pop(key, None)
        self._seen.get(key[0], set()).discard(key)
        self._drop(key)

    def _drop(self, key: Key) -> None:
        waiting = self._waiting.get(key[0], {})
        waiting.pop(key, None)
        if not waiting:
            self._waiting.pop(key[0], None)
        first = self._first.get(key[0], {})
        first.pop(key, None)
        if not first:
            self._first.pop(key[0], None)

    def _on_quota(self, kind: EventType, quota: core.ResourceQuota, before: core.ResourceQuota | None) -> None:
        if kind == DELETED:
            self._used.pop(quota.metadata.key, None)
        else:
            self._compare(quota)
        if kind == DELETED or before is None or (quota.spec, quota.status) != (before.spec, before.status):
            self._wake(quota.metadata.namespace)

    def _on_range(self, _: EventType, limits: core.LimitRange, __: core.LimitRange | None) -> None:
        self._wake(limits.metadata.namespace)

    def _wake(self, namespace: str) -> None:
        for wake in list(self._waiting.get(namespace, {}).values()):
            wake(REST)


class QuotaRoom:
    """The quotas of namespaces as they concern Jobs: these are resumed by the same balance as pods are created.

    Args:
        client: to the API server.
        quotas: of all namespaces.
        unsettled: tells whether a resource of a namespace may need its room first (``NamespaceQuotas.settles``).
        again: has a Job looked at in some seconds.
    """

    def __init__(
        self,
        client: Client,
        quotas: NamespaceQuotas,
        unsettled: Callable[[str], bool],
        again: Callable[[Key, float], None],
    ) -> None:
        self._client = client
        self._quotas = quotas
        self._unsettled = unsettled
        self._again = again

    async def charge(self, namespace: str, pod: core.Pod) -> PodCharge:
        """What quotas charge for a pod, and for claims that are made for it.

        Raises:
            KubeError: when the API server could not be asked.
        """
        claims = (claim.get("resourceClaimTemplateName") for claim in pod.spec.resource_claims or ())
        templates = {(namespace, name) for name in claims if name}
        charges = await read_charges(self._client, templates) if templates else {}
        return charge_of(msgspec.to_builtins(pod), self._quotas.ranges(namespace), charges)

    def find_shortages(self, key: Key, demand: Demand) -> tuple[QuotaShortage, ...]:
        """Find what quotas lack for the pods of a Job; it is woken when that may have changed."""
        return self._find_shortages(key, demand, self._quotas.of(key[0]))

    def reserve(self, key: Key, demand: Demand) -> None:
        """Keep quota for pods of a Job that are about to come."""
        self._quotas.note(_named(key), waits=False, first=demand)

    def forget(self, key: Key) -> None:
        """Keep nothing for a Job, and do not wake it."""
        self._quotas.forget(_named(key))

    @contextlib.asynccontextmanager
    async def take(self, key: Key, demand: Demand) -> AsyncIterator[bool]:
        """Be the only one that creates pods in a namespace, and keep quota for those of a Job; False where it has none."""
        async with self._quotas.turn(key[0], wanted=True) as quotas:
            late = quotas is not None and (self._unsettled(key[0]) or self._quotas.rests(_named(key)))
            if late or (quotas is not None and self._find_shortages(key, demand, quotas)):
                yield False
                return
            self.reserve(key, demand)
            yield True

    def _find_shortages(
        self, key: Key, demand: Demand, quotas: Sequence[core.ResourceQuota]
    ) -> tuple[QuotaShortage, ...]:
        short = Balance(quotas, self._quotas.reserved_demand(_named(key))).shortages(demand)
        self._quotas.note(_named(key), waits=bool(short), first=None, wake=partial(self._again, key))
        return short


def _named(key: Key) -> Key:
    """No resource has such a name."""
    return (key[0], f"{JOBS.kind}/{key[1]}")
