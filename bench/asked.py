"""Requests that an API server was sent, and the bytes in them, by what they write; whoever sends them counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from localcluster import Cluster
from scrapes import Scrape

#: What reads is not counted: watches are one request each, however much they carry.
_WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "apply", "DELETE": "delete"}


@dataclass(frozen=True)
class Asked:
    """``writes`` by verb and resource (``patch pods``, ``create pods/binding``), ``sent`` their bytes by resource."""

    writes: Counter[str]
    sent: Counter[str]

    @classmethod
    def read(cls, cluster: Cluster) -> Asked:
        """What the API server has counted so far."""
        writes: Counter[str] = Counter()
        sent: Counter[str] = Counter()
        for (name, pairs), value in Scrape.parse(cluster.kubectl("get", "--raw", "/metrics")).samples.items():
            labels = dict(pairs)
            if name == "apiserver_request_total" and labels["verb"] in _WRITES and labels.get("dry_run", "") == "":
                what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                writes[f"{_WRITES[labels['verb']]} {what}"] += int(value)
            elif name == "apiserver_request_body_size_bytes_sum":
                sent[labels["resource"]] += int(value)
        return cls(writes, sent)

    def __sub__(self, other: Asked) -> Asked:
        return Asked(self.writes - other.writes, self.sent - other.sent)

    def report(self, pods: int) -> dict[str, Any]:
        """By pod: bytes, and requests, those of leases left out."""
        kept = {what: count for what, count in self.writes.most_common() if not what.endswith(" leases")}
        return {
            "requestsPerPod": round(sum(kept.values()) / pods, 2),
            "bytesPerPod": round(self.sent.total() / pods),
            "requestsPerPodByKind": {what: each for what, count in kept.items() if (each := round(count / pods, 2))},
        }
