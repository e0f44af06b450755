"""Sums of what the pods of a minimum ask for, written as Volcano writes them back.

Volcano stores a PodGroup with its status in one piece, and Go's ``resource.Quantity`` has one way to write an amount.
``1000m`` would come back as ``1``, count as edited by somebody, and be applied again for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from covey.api import core
from covey.compile import RoleRevision
from covey.compile.revision import Template
from covey.placement.cluster.resources import BYTES, CPU, PODS, pod_requests

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


#: Of an amount in thousandths.
_DECIMAL: Final = ("m", "", "k", "M", "G", "T", "P", "E")


def requests_of(template: Template) -> Mapping[str, int] | None:
    """Compute what a pod takes from its node; None when that cannot be read, which the API server will say better."""
    try:
        pod = msgspec.convert({"metadata": {}, "spec": template["spec"]}, core.Pod, strict=False)
        amounts = pod_requests(pod)
    except (msgspec.ValidationError, ValueError):
        return None
    return {name: amount for name, amount in amounts.items() if name != PODS}


def requests_together(replicas: Iterable[RoleRevision]) -> dict[str, str] | None:
    """Compute what whole replicas ask for together; None when one of them cannot be read."""
    total: dict[str, int] = {}
    alike: dict[tuple[str, int], list[RoleRevision]] = {}
    for replica in replicas:
        alike.setdefault((replica.hash, replica.size), []).append(replica)
    for revision, *others in alike.values():
        leader, worker = (requests_of(revision.template_of(index)) for index in (0, 1))
        if leader is None or worker is None:
            return None
        for requests, pods in ((leader, 1), (worker, revision.size - 1)):
            for name, amount in requests.items():
                total[name] = total.get(name, 0) + amount * pods * (1 + len(others))
    return {name: canonical(name, amount) for name, amount in sorted(total.items()) if amount}


def canonical(resource: str, amount: int) -> str:
    """An amount (milli-units of cpu, else whole units) with the largest suffix that leaves it whole.

    That is Go's ``Quantity.String()``: powers of 1024 for bytes that are one, else powers of 1000.
    """
    if resource in BYTES and amount % 1024 == 0:
        return _with_suffix(amount, 1024, _BINARY)
    return _with_suffix(amount if resource == CPU else amount * 1000, 1000, _DECIMAL)


def _with_suffix(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    if not amount:
        return "0"
    power = 0
    while amount % base == 0 and power + 1 < len(suffixes):
        amount //= base
        power += 1
    return f"{amount}{suffixes[power]}"
