"""Who looks after resources: the processes that lead, as their leases tell, and what to say where nobody does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from covey.api import core
from covey.api.annotations import read_json
from covey.api.constants import ANNOTATION_LEADER, LEASE_SCHEDULER, OPERATOR, REASON_WAITING
from covey.api.inference import DisaggregatedInference
from covey.kube.client import Client
from covey.kube.errors import Forbidden
from covey.kube.resources import LEASES
from covey.watching.advice import Advice, describe_unseen, was_seen

#: Seconds after which a leader that has not looked at a resource is worth a sentence.
_SLOW: Final = 10.0


class LeaseSpec(core.Read, frozen=True):
    """``LeaseSpec`` of ``coordination.k8s.io/v1``."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    renew_time: str | None = None
    acquire_time: str | None = None


class Lease(core.Read, frozen=True):
    """A Lease."""

    metadata: core.Meta
    spec: LeaseSpec = LeaseSpec()


class Leader(msgspec.Struct, frozen=True):
    """The process that a lease says leads. ``silence``: seconds since it renewed the lease; None where it never did."""

    name: str
    namespace: str
    holder: str = ""
    silence: float | None = None
    is_expired: bool = True
    #: Since when it leads, RFC 3339; empty where the lease does not say.
    since: str = ""
    #: Of Covey; empty where the holder is of a release that does not tell.
    version: str = ""
    #: The namespaces that it watches; none: all.
    namespaces: tuple[str, ...] = ()


def find_leader(leases: Iterable[Lease], name: str, now: float) -> Leader | None:
    """Find who leads by the leases of a name, the one that was renewed last; None where there is none.

    Args:
        leases: of any names and namespaces.
        name: of the lease.
        now: seconds since the epoch.
    """
    leaders = [_leader(lease, now) for lease in leases if lease.metadata.name == name]
    return min(leaders, key=lambda leader: (leader.silence is None, leader.silence or 0.0), default=None)


async def read_leases(client: Client) -> tuple[Lease, ...] | None:
    """Covey's leases in all namespaces; None where they may not be read."""
    try:
        lists = [
            (await client.list(LEASES, fields=f"metadata.name={name}", type=Lease))[0]
            for name in (OPERATOR, LEASE_SCHEDULER)
        ]
    except Forbidden:
        return None
    return tuple(lease for leases in lists for lease in leases)


def find_silent_leaders(leases: Iterable[Lease], now: float) -> Iterator[Advice]:
    """Say of each lease that nobody renews that its process does not run; nothing of a process that has none."""
    known = tuple(leases)
    for name, what in ((OPERATOR, "No operator leads"), (LEASE_SCHEDULER, "No scheduler process leads")):
        leader = find_leader(known, name, now)
        if leader is not None and leader.is_expired:
            yield _away(leader, name, what)


def find_absences(inference: DisaggregatedInference, leases: Iterable[Lease] | None, now: float) -> Iterator[Advice]:
    """Say who does not look after a resource, though somebody should, and where to look.

    Args:
        inference: the resource.
        leases: Covey's, in all namespaces; None where they may not be read.
        now: seconds since the epoch.
    """
    behind = describe_unseen(inference)
    created = core.seconds(inference.metadata.creation_timestamp)
    age = now - created if created is not None else 0.0
    if leases is None:
        if behind and age > _SLOW:
            yield Advice(
                "NoOperator",
                f"{behind[:1].upper()}{behind[1:]}.",
                "Ask who runs the cluster whether Covey's operator runs, and which namespaces it watches.",
            )
        return
    known = tuple(leases)
    operator, scheduler = (find_leader(known, name, now) for name in (OPERATOR, LEASE_SCHEDULER))
    since = f" for {age:.0f} s" if behind and not was_seen(inference) else ""
    namespace = inference.metadata.namespace
    if operator is None and not behind:
        pass  # It may run without a lease, as in a debugger.
    elif operator is None or operator.is_expired:
        yield _away(operator, OPERATOR, f"No operator has looked at it{since}" if behind else "No operator leads")
    elif operator.namespaces and namespace not in operator.namespaces:
        watched = ", ".join(operator.namespaces)
        yield Advice(
            "NoOperator",
            f"No operator looks at it: {_held(operator)} watches namespaces {watched}, and not {namespace}.",
            "Add the namespace to watchNamespaces of the chart, or use one of these.",
        )
    elif behind and age > _SLOW:
        yield Advice(
            "NoOperator",
            f"No operator has looked at it{since}, though {_held(operator)} is renewed.",
            f"See the operator's log: kubectl logs -n {operator.namespace} deployment/covey-operator",
        )
    waits = any(unit.reason == REASON_WAITING for unit in (inference.status.unit_statuses if inference.status else ()))
    if waits and scheduler is not None and scheduler.is_expired:
        yield _away(scheduler, LEASE_SCHEDULER, "No scheduler process has decided on it")


def _leader(lease: Lease, now: float) -> Leader:
    spec, meta = lease.spec, lease.metadata
    renewed = core.seconds(spec.renew_time)
    silence = max(now - renewed, 0.0) if renewed is not None else None
    expired = not spec.holder_identity or silence is None or silence > spec.lease_duration_seconds
    # A release that does not write it leaves what the one before it wrote.
    leader = read_json(meta.annotation(ANNOTATION_LEADER))
    mine = leader if isinstance(leader, dict) and leader.get("holder") == spec.holder_identity else {}
    namespaces = tuple(map(str, mine.get("namespaces") or ()))
    version = str(mine.get("version") or "")
    return Leader(
        *(meta.name, meta.namespace, spec.holder_identity, silence, expired, spec.acquire_time or "", version),
        namespaces=namespaces,
    )


def _held(leader: Leader) -> str:
    return f"the operator of lease {leader.namespace}/{leader.name}, held by {leader.holder},"


def _away(leader: Leader | None, name: str, what: str) -> Advice:
    if leader is None:
        return Advice(
            "NoOperator" if name == OPERATOR else "NoScheduler", f"{what}: there is no lease {name}.", _INSTALL
        )
    whose = f"lease {leader.namespace}/{leader.name}"
    if not leader.holder:
        state = f"{whose} is held by nobody"
    else:
        ago = f"{leader.silence:.0f} s ago" if leader.silence is not None else "never"
        state = f"{whose} of {leader.holder} was renewed {ago}"
    remedy = f"See whether it runs: kubectl get deployment,pods -n {leader.namespace}"
    return Advice("NoOperator" if name == OPERATOR else "NoScheduler", f"{what}: {state}.", remedy)


_INSTALL: Final = "Install Covey, or see whether it was uninstalled: helm list -A"
