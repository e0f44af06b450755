"""The backend ``Volcano``: vc-scheduler places the pods, one PodGroup for each unit, whose subgroups are the replicas.

What Volcano does not give is held by Covey's gate: nothing beyond a minimum is shown to it before that minimum is
bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec
from covey.backends.hypernodes import NOWHERE, HyperNodes
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, OwnedStatus, Release, ReleaseFacts, UnitReport
from covey.backends.volcano.groups import ANNOTATION_GROUP, TYPE, UnitCompiler
from covey.backends.volcano.refusals import refusals_of
from covey.backends.volcano.release import MET, release
from covey.compile import Layout, Levels, Revision, Tree, compile_inference
from covey.compile.identity import group_name
from covey.kube.resources import VOLCANO_POD_GROUPS, Resource

_SUBGROUPS: Final = ("volcano: minSubGroups", "volcano: matchLabelKeys")
_REMEDY: Final = "install Volcano 1.14 or later, its CustomResourceDefinitions included"
_POLICY: Final = {"name": "probe", "subGroupSize": 1, "minSubGroups": 1, "matchLabelKeys": [names.LABEL_REPLICA]}


@dataclass(frozen=True)
class Volcano:
    """The backend ``Volcano``.

    Args:
        hyper_nodes: domains of the cluster; None where nobody has looked: levels are then written by name.
    """

    hyper_nodes: HyperNodes | None = None

    name: ClassVar[BackendName] = BackendName.VOLCANO
    dialect: ClassVar[str] = ""
    silence: ClassVar[str] = (
        "Volcano has not looked at it yet; if this stays, see whether vc-scheduler runs, and whether the queue exists "
        "and is open"
    )
    needs_room: ClassVar[bool] = False
    has_fixed_levels: ClassVar[bool] = False

    def within(self, cluster: Cluster) -> Volcano:
        """Return the same backend, with levels as the tiers of this cluster."""
        return Volcano(cluster.hyper_nodes)

    def kinds(self) -> tuple[Resource, ...]:
        """Return PodGroups of Volcano."""
        return (VOLCANO_POD_GROUPS,)

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return probes of the subgroups, which a CustomResourceDefinition from before 1.14 drops."""
        body = {
            "apiVersion": VOLCANO_POD_GROUPS.api_version,
            "kind": VOLCANO_POD_GROUPS.kind,
            "metadata": {"name": "covey-probe"},
            "spec": {"minMember": 1, "subGroupPolicy": [_POLICY]},
        }
        return tuple(
            FieldProbe(name, VOLCANO_POD_GROUPS, body, ("spec", "subGroupPolicy", 0, name.removeprefix("volcano: ")))
            for name in _SUBGROUPS
        )

    def absent(self, cluster: Cluster) -> str | None:
        """Return what the cluster lacks, or None: without subgroups in PodGroups a role's minimum would be lost."""
        if not cluster.serves(VOLCANO_POD_GROUPS):
            return f"the cluster does not serve podgroups of {VOLCANO_POD_GROUPS.api_version}: {_REMEDY}"
        lost = next((name for name in _SUBGROUPS if name not in cluster.kept), None)
        if lost is None:
            return None
        if lost in cluster.unprobed:
            return f"whether Volcano's PodGroups keep spec.subGroupPolicy is not known: {cluster.unprobed[lost]}"
        return f"Volcano's PodGroups do not keep spec.subGroupPolicy, by which roles have minimums: {_REMEDY}"

    def refusals(self, spec: DisaggregatedInferenceSpec, levels: Levels | None, cluster: Cluster) -> tuple[str, ...]:
        """Report what cannot be carried: preferences, rules between units, and levels that its HyperNodes lack."""
        return tuple(refusals_of(spec, levels or {}, cluster.hyper_nodes))

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """Compile to a PodGroup for each unit, and its pods."""
        groups = partial(UnitCompiler, constraint=partial(self._constraint, levels or {}))
        return compile_inference(inference, layout=layout, revision=revision, levels=levels, groups=groups)

    def _constraint(self, levels: Levels, level: str) -> Mapping[str, Any]:
        if self.hyper_nodes is None:
            return {"highestTierName": level}
        tier = self.hyper_nodes.tier(level, levels)
        # Without HyperNodes that can be trusted nothing new is placed; what runs stays.
        return {"highestTierAllowed": tier if isinstance(tier, int) else NOWHERE}

    def read_back(self, inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """Return what Volcano says, in its own words.

        That a unit is admitted follows from its pods, as long as it is not met.
        """
        root = objects.get((TYPE, group_name(inference, unit)))
        if root is None:
            return None
        return UnitReport(root.metadata.uid, root.metadata.creation_timestamp, self._admitted_condition(root.status))

    def _admitted_condition(self, status: OwnedStatus) -> core.Condition:
        if status.phase in MET:
            return core.Condition(names.ADMITTED, "True", names.REASON_ADMITTED, "Volcano has admitted its minimum")
        # Both kinds of conditions stay when they cease to hold; this one is not asked for while the phase says else.
        condition = core.condition(status.conditions, "Unschedulable")
        message = f"Volcano: {condition.message}" if condition is not None and condition.message else self.silence
        phase = f" (phase {status.phase})" if status.phase else ""
        return core.Condition(names.ADMITTED, "False", names.REASON_WAITING, f"{message}{phase}")

    def in_use(self, _objects: Mapping[Identity, Owned], pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Return the PodGroups that pods name in an annotation."""
        return frozenset((TYPE, pod.metadata.annotation(ANNOTATION_GROUP) or "") for pod in pods)

    def is_fixed(self, _stored: Owned, _wanted: Mapping[str, Any]) -> bool:
        """Return False: every field of a PodGroup can be changed."""
        return False

    def fixed_fields(self, _body: Mapping[str, Any]) -> str:
        """Return an empty digest: there are no fixed fields."""
        return ""

    def release(self, progress: ReleaseFacts) -> Release:
        """Release the minimum as one, then what is beyond it."""
        return release(progress)
