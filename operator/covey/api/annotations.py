"""Annotations of root groups by which the operator and the scheduler process tell each other what to heed.

Nodes that new pods of a unit avoid: a JSON list of ``{"node": name, "until": RFC 3339, "reason": text}``, or with
``"domain": {level: value, …}``, the values of a domain and of those around it, in place of the node.

Ordinary pods whose eviction for a root was refused: a JSON object of UID to the time (RFC 3339) until which the pod is
left alone.

Nodes that an autoscaler is asked for, for a root: a JSON object of ``since`` (RFC 3339), ``waitSeconds`` and ``labels``.

Pods of a suspended Job that are not created before they have places: a JSON object of ``pod`` (one like all of them, as
the API server would store it), and of ``waits`` and ``reason`` where no places are looked for yet.

All are read as anybody may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from covey.api import core

#: Seconds for which a pod is left alone whose eviction was refused. What is written for longer means nothing.
LEFT_ALONE: Final = 300.0
#: Pods that one annotation names.
_MOST: Final = 256
#: Seconds of patience with each node that is asked for, at most.
LONGEST_WAIT: Final = 3600.0


def read_json(text: str | None) -> Any:
    """The JSON value of an annotation; None where there is none, where it is no JSON, or nested too deep to be read."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Avoided:
    """A node, or all nodes of a domain (level → value), until a time in seconds since the epoch."""

    until: float
    reason: str
    node: str = ""
    domain: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """The words for people."""
        return (
            f"node {self.node}" if self.node else " ".join(f"{level} {value}" for level, value in self.domain.items())
        )


def dump_avoided(avoided: Iterable[Avoided]) -> str | None:
    """The annotation; None for nothing."""
    entries = [
        ({"node": entry.node} if entry.node else {"domain": dict(entry.domain)})
        | {"until": core.rfc3339(entry.until), "reason": entry.reason}
        for entry in avoided
    ]
    return json.dumps(entries, separators=(",", ":")) if entries else None


def read(text: str | None) -> tuple[Avoided, ...]:
    """Read an annotation; what cannot be understood is left out."""
    entries = read_json(text)
    return tuple(entry for item in entries if (entry := _read(item))) if isinstance(entries, list) else ()


def _read(entry: Any) -> Avoided | None:
    if not isinstance(entry, dict):
        return None
    until, node, domain = core.seconds(_text(entry.get("until"))), _text(entry.get("node")), entry.get("domain")
    places = domain if isinstance(domain, dict) else {}
    if until is None or not (node or places) or not all(isinstance(name, str) for name in places.values()):
        return None
    return Avoided(until, _text(entry.get("reason")) or "", node or "", places)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_refused(text: str | None, now: float) -> dict[str, float]:
    """Read the pods that are left alone now, by UID, and until when."""
    pods = read_json(text)
    pairs = pods.items() if isinstance(pods, dict) else ()
    times = ((uid, core.seconds(until) or 0.0) for uid, until in pairs if isinstance(until, str))
    return {uid: until for uid, until in times if 0.0 < until - now <= LEFT_ALONE + 1.0}


def write_refused(refused: Mapping[str, float]) -> str:
    """Write the pods that are left alone; of too many those that are so for longest."""
    latest = sorted(refused.items(), key=lambda entry: (-entry[1], entry[0]))[:_MOST]
    return json.dumps({uid: core.rfc3339(until) for uid, until in sorted(latest)})


@dataclass(frozen=True, slots=True)
class NodesAsked:
    """Nodes that are asked for since a time (seconds since the epoch), and the labels that all of them have.

    ``wait``: seconds in which after each of them another one may come.
    """

    since: float
    wait: float
    labels: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> str:
        """The annotation."""
        return json.dumps(
            {"since": core.rfc3339(self.since), "waitSeconds": self.wait, "labels": dict(self.labels)}, sort_keys=True
        )


def read_asked(text: str | None) -> NodesAsked | None:
    """Read an annotation; None where nothing is asked for, or where it cannot be understood."""
    body = read_json(text)
    if not isinstance(body, dict):
        return None
    since, wait, labels = core.seconds(_text(body.get("since"))), body.get("waitSeconds"), body.get("labels")
    if since is None or not isinstance(wait, int | float) or not wait >= 0 or not isinstance(labels, dict):
        return None
    return NodesAsked(since, min(wait, LONGEST_WAIT), labels)


class Expected(core.Read, frozen=True):
    """The pods that a suspended Job would have: ``pod`` is like all of them.

    ``waits``: why no places are looked for yet, with the ``reason`` of the condition that says so.
    """

    pod: core.Pod | None = None
    waits: str = ""
    reason: str = ""


def dump_expected(expected: Expected | None) -> str | None:
    """The annotation; None for nothing."""
    return msgspec.json.encode(expected).decode() if expected is not None else None


def read_expected(text: str | None) -> Expected | None:
    """Read the annotation; None where it says nothing, or cannot be understood."""
    try:
        return msgspec.json.decode(text or "null", type=Expected | None)
    except (ValueError, RecursionError):
        return None
