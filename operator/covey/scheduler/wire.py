"""The messages between kube-scheduler and an extender: ``k8s.io/kube-scheduler/extender/v1``.

Go's field names, for the Go structs carry no JSON tags. ``NodeNames`` stays raw bytes: for a pinned pod it is never
decoded, and in a cluster of 5,000 nodes it is most of the body.
"""

from __future__ import annotations

from typing import Final

import msgspec

from covey.api import core


class FilterArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderArgs``, with ``nodeCacheCapable: true`` (names, no node objects)."""

    pod: core.Pod
    node_names: msgspec.Raw = msgspec.Raw(b"null")


class FilterResult(msgspec.Struct, rename="pascal", omit_defaults=True):
    """``ExtenderFilterResult``. ``NodeNames`` is always sent: its absence would mean that no node is left."""

    node_names: list[str] | msgspec.Raw
    failed_and_unresolvable_nodes: dict[str, str] = {}


class MetaPod(msgspec.Struct, rename="pascal"):
    """``MetaPod``: a victim."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, rename="pascal"):
    """``MetaVictims``: who would be evicted from one node, highest priority first."""

    pods: tuple[MetaPod, ...] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderPreemptionArgs``, with ``nodeCacheCapable: true`` (UIDs, no pod objects)."""

    pod: core.Pod
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class PreemptResult(msgspec.Struct, rename="pascal"):
    """``ExtenderPreemptionResult``: the nodes that may be chosen; an empty map is a veto."""

    node_name_to_meta_victims: dict[str, MetaVictims] = {}


class BindArgs(msgspec.Struct, rename="pascal"):
    """``ExtenderBindingArgs``."""

    pod_name: str
    pod_namespace: str
    node: str
    pod_uid: str = msgspec.field(name="PodUID")


class BindResult(msgspec.Struct, rename="pascal"):
    """``ExtenderBindingResult``; an empty error is success."""

    error: str = ""


FILTER_ARGS: Final = msgspec.json.Decoder(FilterArgs)
PREEMPT_ARGS: Final = msgspec.json.Decoder(PreemptArgs)
BIND_ARGS: Final = msgspec.json.Decoder(BindArgs)
NAMES: Final = msgspec.json.Decoder(list[str] | None)
ENCODER: Final = msgspec.json.Encoder()
