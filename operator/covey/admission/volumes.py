"""Nodes that the volumes of a pod leave it: pure, kept up event by event.

A claim that is bound to a PersistentVolume with required node affinity (a local disk, a zone) ties its pods to those
nodes; kube-scheduler would never put them anywhere else, so the planner must not either. Claims that are not bound yet
are kube-scheduler's business, which chooses and binds a volume on the node that the pod is pinned to.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from msgspec.structs import replace

from covey.api import core

#: Terms that a pod's own affinity and those of its volumes may multiply to; beyond, the volumes' are left out.
MOST_TERMS: Final = 256

K = TypeVar("K")
V = TypeVar("V")
Claim = tuple[str, str]  # namespace, name


class ClaimSpec(core.Read, frozen=True):
    """``spec`` of a PersistentVolumeClaim; ``volume_name`` once it is bound."""

    volume_name: str = ""
    access_modes: tuple[str, ...] | None = None


class VolumeClaim(core.Read, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: core.Meta
    spec: ClaimSpec = ClaimSpec()


class VolumeNodeAffinity(core.Read, frozen=True):
    """``VolumeNodeAffinity``, whose field has a name of its own."""

    required: core.NodeSelector | None = None


class PersistentVolumeSpec(core.Read, frozen=True):
    """``spec`` of a PersistentVolume."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(core.Read, frozen=True):
    """A PersistentVolume."""

    metadata: core.Meta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class Volumes:
    """Claims, the volumes that they are bound to, and the unbound pods that name them."""

    def __init__(self) -> None:
        self._bound: dict[Claim, str] = {}
        self._claims: dict[str, set[Claim]] = {}
        self._nodes: dict[str, core.NodeSelector] = {}
        self._pods: dict[Claim, set[str]] = {}
        self._named: dict[str, tuple[Claim, ...]] = {}

    def set_pod(self, pod: core.Pod) -> None:
        """Take over a pod as it is now; one that is bound has its place, whatever its volumes say."""
        named = () if pod.spec.node_name or not pod.spec.volumes else tuple(claims_of(pod))
        uid = pod.metadata.uid
        if self._named.get(uid, ()) != named:
            self.remove_pod(uid)
            for claim in named:
                self._pods.setdefault(claim, set()).add(uid)
            if named:
                self._named[uid] = named

    def remove_pod(self, uid: str) -> None:
        """The pod is gone."""
        for claim in self._named.pop(uid, ()):
            _discard(self._pods, claim, uid)

    def set_claim(self, claim: Claim, volume: str) -> set[str]:
        """A claim is bound to a volume, or to none (empty). Returns the pods whose place it concerns."""
        before = self._bound.get(claim, "")
        if before == volume:
            return set()
        if before:
            del self._bound[claim]
            _discard(self._claims, before, claim)
        if volume:
            self._bound[claim] = volume
            self._claims.setdefault(volume, set()).add(claim)
        return set(self._pods.get(claim, ()))

    def naming(self, claim: Claim) -> Collection[str]:
        """The unbound pods that name a claim."""
        return self._pods.get(claim, ())

    def set_volume(self, name: str, nodes: core.NodeSelector | None) -> set[str]:
        """A volume is reached from these nodes only, or from all. Returns the pods whose place it concerns."""
        if self._nodes.get(name) == nodes:
            return set()
        if nodes is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = nodes
        return {uid for claim in self._claims.get(name, ()) for uid in self._pods.get(claim, ())}

    def are_claims_bound(self, pod: core.Pod) -> bool:
        """Every claim that the pod names is bound, so that `confine_to_volumes` says all about where its volumes are."""
        return all(claim in self._bound for claim in claims_of(pod))

    def confine_to_volumes(self, pod: core.Pod, spec: core.PodSpec) -> core.PodSpec:
        """A pod's spec with its volumes' nodes as required node affinity; the spec itself where there are none."""
        if not spec.volumes or not self._nodes:
            return spec
        confining = (self._nodes.get(self._bound.get(claim, "")) for claim in claims_of(pod))
        return confine_to_nodes(spec, (selector for selector in confining if selector is not None))


def confine_to_nodes(spec: core.PodSpec, selectors: Iterable[core.NodeSelector]) -> core.PodSpec:
    """A pod's spec with these as required node affinity beside its own; the spec itself where there are none."""
    wanted = list(dict.fromkeys(selectors))
    if not wanted:
        return spec
    affinity = spec.affinity or core.Affinity()
    own = affinity.node_affinity.required if affinity.node_affinity else None
    both = _all_of([own, *wanted] if own is not None else wanted)
    return spec if both is None else replace(spec, affinity=replace(affinity, node_affinity=core.NodeAffinity(both)))


def claims_of(pod: core.Pod) -> Iterable[Claim]:
    """The claims that a pod's volumes name; a generic ephemeral volume's is named after pod and volume."""
    namespace, name = pod.metadata.key
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield (namespace, str(volume.persistent_volume_claim.get("claimName", "")))
        elif volume.ephemeral is not None:
            yield (namespace, f"{name}-{volume.name}")


def _all_of(selectors: list[core.NodeSelector]) -> core.NodeSelector | None:
    """Selectors that must all hold as one: the terms of each are alternatives, an empty one matches nothing."""
    alternatives = [
        [term for term in selector.node_selector_terms if term.match_expressions or term.match_fields]
        for selector in selectors
    ]
    count = 1
    for alternative in alternatives:
        count *= len(alternative)
    if count > MOST_TERMS:
        return None
    terms = tuple(
        core.NodeSelectorTerm(
            match_expressions=tuple(one for term in picked for one in term.match_expressions or ()) or None,
            match_fields=tuple(one for term in picked for one in term.match_fields or ()) or None,
        )
        for picked in itertools.product(*alternatives)
    )
    return core.NodeSelector(terms or (core.NodeSelectorTerm(),))


def _discard(kept: dict[K, set[V]], key: K, value: V) -> None:
    kept[key].discard(value)
    if not kept[key]:
        del kept[key]
