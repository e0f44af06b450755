"""Leader election on a Lease, with client-go's semantics and its 15 / 10 / 2 seconds.

A candidate never compares another machine's clock with its own: a lease counts as expired when its record has
not changed for the record's duration *as observed here*, on the monotonic clock.  The holder gives up
``renew_deadline`` seconds after the last renewal was *sent*, before anybody else may think it expired; so two
processes lead at once only if clocks run at rates that differ by half.

A process that loses the lease has to end: there is no way back from ``LeaseLost``.

Covey is installed once in a cluster: before it takes a lease, a candidate looks whether one of that name is renewed in
another namespace. Anybody may have such a Lease in a namespace of their own, so it counts only where Covey's account of that
namespace has a right in the whole cluster, which nobody but its administrators gives.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from covey.api.constants import ANNOTATION_LEADER
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.errors import AlreadyExists, Conflict, Forbidden, InstalledTwice, KubeError, LeaseLost, NotFound
from covey.kube.event_series import micro_time
from covey.kube.resources import CLUSTER_TOPOLOGIES, LEASES, SUBJECT_ACCESS_REVIEWS
from covey.observability.logging import get_logger
from covey.observability.metrics import LEADER, LEASE_TRANSITIONS

_log = get_logger(__name__)

#: Candidates wait between once and this much of the retry period more, so that they do not collide.
_JITTER: Final = 1.2


@dataclass(frozen=True, slots=True)
class Observation:
    """A Lease as last seen, and since when it has looked like that (seconds of the monotonic clock)."""

    lease: dict[str, Any]
    since: float

    @property
    def holder(self) -> str:
        """Identity of the holder; empty when it was released."""
        return str(self._spec.get("holderIdentity") or "")

    def observe(self, lease: dict[str, Any], now: float) -> Observation:
        """Return the next observation: time starts again only when the record has changed."""
        return Observation(lease, self.since if lease.get("spec") == self._spec else now)

    def is_expired(self, now: float) -> bool:
        """Tell whether the holder has been silent for the duration that it promised itself."""
        return now >= self.since + float(self._spec.get("leaseDurationSeconds") or 0)

    def claim(self, identity: str, duration: int, stamp: str) -> dict[str, Any]:
        """The Lease that makes, or keeps, ``identity`` its holder."""
        spec = {**self._spec, "holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": stamp}
        if self.holder != identity:
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = self.transitions + 1
        return {**self.lease, "spec": spec}

    def release(self, stamp: str) -> dict[str, Any]:
        """The Lease that nobody holds; a second is the shortest duration the API takes."""
        spec = {**self._spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": stamp}
        return {**self.lease, "spec": spec}

    @property
    def transitions(self) -> int:
        """Number of times that the lease has changed hands."""
        return int(self._spec.get("leaseTransitions") or 0)

    @property
    def _spec(self) -> dict[str, Any]:
        return self.lease.get("spec") or {}


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The times of a lease, in seconds.

    Raises:
        ValueError: they leave no time for a second attempt to renew.
    """

    #: Others wait that long before they take a silent holder's lease.
    duration: float = 15.0
    #: Without renewal for that long the holder gives up.
    renew_deadline: float = 10.0
    #: Between attempts.
    retry: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry * _JITTER < self.renew_deadline < self.duration:
            raise ValueError("a lease needs 1.2 * retry < renew_deadline < duration")


DEFAULT: Final = LeaseTerms()


class LeaseElector:
    """One candidate for one Lease.

    ``acquire`` waits to become the leader, ``hold`` renews until the lease is lost, ``release`` gives it up at a
    clean exit, so that a successor need not wait.

    Args:
        client: to the API server; best one of its own, so that renewals never wait behind a thousand writes.
        name: of the Lease.
        namespace: of the Lease.
        identity: unique for the process, also after a restart: pod name and a random part.
        account: name of the ServiceAccount that a process of this kind has, in whatever namespace.
        terms: the lease's times.
        clock: its wall time is for the record only; nobody decides by it.
        version: of this process, for people.
        namespaces: those that it watches, likewise; none: all.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        *,
        account: str,
        clock: Clock,
        terms: LeaseTerms = DEFAULT,
        version: str = "",
        namespaces: Sequence[str] = (),
    ) -> None:
        leader = {"holder": identity, "version": version, "namespaces": list(namespaces)}
        self._annotations = {ANNOTATION_LEADER: json.dumps(leader, separators=(",", ":"))}
        self._client = client
        self._name = name
        self._account = account
        self._namespace = namespace
        self._identity = identity
        self._terms = terms
        self._clock = clock
        # Bound of one exchange with the server, so that a slow one leaves time for another.
        self._patience = max(1.0, terms.renew_deadline / 2)
        self._observed: Observation | None = None
        # A write was begun whose outcome is not known: look before the next.
        self._doubtful = False
        self._renewed = float("-inf")
        self._leads = False
        # Leases of this name in other namespaces; looked at until it is known that nobody renews one.
        self._others: dict[str, Observation] = {}
        self._is_alone = False
        self._metric = LEADER.labels(name)
        self._metric.set(0)

    @property
    def is_leader(self) -> bool:
        """Tell whether this process may act now: it leads, and its last renewal is recent enough."""
        return self._leads and self._clock.monotonic() < self._renewed + self._terms.renew_deadline

    @property
    def holder(self) -> str:
        """Identity of the holder as last seen; empty when there is none or it is not known."""
        return self._observed.holder if self._observed else ""

    async def acquire(self) -> None:
        """Wait until this process leads.

        Raises:
            InstalledTwice: a lease of this name is renewed in another namespace.
        """
        _log.info("waiting to lead", lease=self._name, identity=self._identity)
        while not await self._attempt(self._patience):  # noqa: ASYNC110 - the event would be on another machine
            await asyncio.sleep(self._terms.retry * (1.0 + _JITTER * self._clock.random()))
        self._set_leads(leads=True)
        _log.info("leading", lease=self._name, identity=self._identity)

    async def hold(self) -> None:
        """Keep renewing; ends only by raising.

        Raises:
            LeaseLost: somebody else holds the lease, or it could not be renewed in time.
        """
        try:
            while True:
                await asyncio.sleep(self._terms.retry)
                await self._renew()
        except LeaseLost:
            _log.error("lease lost", lease=self._name, identity=self._identity, holder=self.holder)
            raise
        finally:
            self._set_leads(leads=False)

    async def release(self) -> None:
        """Give the lease up, if this process holds it; failing to is only logged: it expires by itself."""
        self._set_leads(leads=False)
        try:
            async with asyncio.timeout(self._patience):
                await self._give_up()
        except (KubeError, TimeoutError) as error:
            _log.warning("lease not released", lease=self._name, error=str(error))

    async def _give_up(self) -> None:
        for _ in range(2):
            if self._doubtful:
                await self._look()
            if self._observed is None or self._observed.holder != self._identity:
                return
            try:
                await self._client.replace(LEASES, self._observed.release(self._stamp()))
            except Conflict:
                # A renewal that was cancelled on its way has arrived after all.
                self._doubtful = True
            else:
                self._observed = None
                _log.info("lease released", lease=self._name, identity=self._identity)
                return

    async def _renew(self) -> None:
        deadline = self._renewed + self._terms.renew_deadline
        while (left := deadline - self._clock.monotonic()) > 0:
            if await self._attempt(left):
                return
            if self.holder not in {"", self._identity}:
                raise LeaseLost(f"{self._name} is held by {self.holder}")
            await asyncio.sleep(max(min(self._terms.retry, deadline - self._clock.monotonic()), 0.0))
        raise LeaseLost(f"{self._name} could not be renewed for {self._terms.renew_deadline:g} s")

    async def _attempt(self, seconds: float) -> bool:
        """Try once to take or renew the lease, for at most that many seconds."""
        try:
            async with asyncio.timeout(min(seconds, self._patience)):
                return await self._claim()
        except (KubeError, TimeoutError) as error:
            _log.warning("lease not reached", lease=self._name, error=str(error) or "no answer in time")
            return False

    async def _look_around(self) -> bool:
        """Tell whether no lease of this name is renewed in another namespace, as far as is known yet."""
        try:
            leases, _ = await self._client.list(LEASES, fields=f"metadata.name={self._name}")
            elsewhere = [lease for lease in leases if lease["metadata"]["namespace"] != self._namespace]
            leases = [lease for lease in elsewhere if await self._is_installed(lease["metadata"]["namespace"])]
        except Forbidden as error:
            _log.warning("other installations of Covey are not looked for", lease=self._name, error=str(error))
            return True
        now = self._clock.monotonic()
        others: dict[str, Observation] = {}
        for lease in leases:
            namespace = lease["metadata"]["namespace"]
            before = self._others.get(namespace)
            observed = before.observe(lease, now) if before else Observation(lease, now)
            if not observed.holder:
                continue
            if before and observed.since != before.since:
                raise InstalledTwice(
                    f"Covey is installed once in a cluster, and lease {self._name} in namespace {namespace} is renewed by "
                    f"{observed.holder}: uninstall one of the two installations"
                )
            others[namespace] = observed
        self._others = others
        return all(observed.is_expired(now) for observed in others.values())

    async def _is_installed(self, namespace: str) -> bool:
        """Tell whether Covey's account in a namespace has a right that a tenant cannot give it."""
        kind = CLUSTER_TOPOLOGIES
        spec = {
            "user": f"system:serviceaccount:{namespace}:{self._account}",
            "resourceAttributes": {"group": kind.group, "resource": kind.plural, "verb": "list"},
        }
        review = await self._client.create(SUBJECT_ACCESS_REVIEWS, {"spec": spec})
        return bool(review["status"].get("allowed"))

    async def _claim(self) -> bool:
        if not self._is_alone:
            self._is_alone = await self._look_around()
            if not self._is_alone:
                return False
        # The holder knows the record it wrote and need not read it first.
        if self._doubtful or not self._leads:
            await self._look()
        try:
            return await self._write()
        except (Conflict, AlreadyExists):
            await self._look()
            return False

    async def _look(self) -> None:
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFound:
            self._observed = None
        else:
            now = self._clock.monotonic()
            self._observed = self._observed.observe(lease, now) if self._observed else Observation(lease, now)
            LEASE_TRANSITIONS.labels(self._name).set(self._observed.transitions)
        self._doubtful = False

    async def _write(self) -> bool:
        """Write the record that makes this process the holder, unless somebody else is."""
        sent = self._clock.monotonic()
        observed = self._observed
        if observed is None:
            blank = Observation({"metadata": {"name": self._name, "namespace": self._namespace}}, sent)
            self._doubtful = True
            lease = await self._client.create(LEASES, self._claim_of(blank), self._namespace)
        elif observed.holder not in {"", self._identity} and not observed.is_expired(sent):
            return False
        else:
            self._doubtful = True
            lease = await self._client.replace(LEASES, self._claim_of(observed))
        self._observed = Observation(lease, sent)
        LEASE_TRANSITIONS.labels(self._name).set(self._observed.transitions)
        self._renewed = sent
        self._doubtful = False
        return True

    def _claim_of(self, observed: Observation) -> dict[str, Any]:
        lease = observed.claim(self._identity, math.ceil(self._terms.duration), self._stamp())
        metadata = lease["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **self._annotations}
        return {**lease, "metadata": {**metadata, "annotations": annotations}}

    def _stamp(self) -> str:
        return micro_time(self._clock.wall())

    def _set_leads(self, *, leads: bool) -> None:
        self._leads = leads
        self._metric.set(leads)
