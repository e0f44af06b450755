"""Covey places the pods itself; any stock kube-scheduler binds them, guarded by the extender.

Groups are Covey's own kinds (``scheduling.covey.dev``), and every pod is born with the gate that only Covey's scheduler
lifts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName, DisaggregatedInference, DisaggregatedInferenceSpec, DisruptionMode
from covey.backends.seam import Cluster, FieldProbe, Identity, Owned, Release, ReleaseFacts, UnitReport
from covey.compile import Layout, Levels, Revision, Tree, compile_inference
from covey.compile.group_hierarchy import GroupCompiler
from covey.compile.identity import group_name
from covey.kube import resources
from covey.kube.resources import Resource

_KINDS: Final = (resources.WORKLOADS, resources.COMPOSITE_POD_GROUPS, resources.POD_GROUPS)
_COMPOSITE: Final = resources.COMPOSITE_POD_GROUPS.type
_LEAF: Final = resources.POD_GROUPS.type
_RESPONDER: Final = {"name": names.EVICTION_RESPONDER, "priority": names.EVICTION_PRIORITY}


@dataclass(frozen=True, slots=True)
class Extender:
    """The backend ``Extender``, which ``Auto`` means.

    Args:
        evictions: pods are born with the operator as responder to their Evictions.
    """

    evictions: bool = False

    name: ClassVar[BackendName] = BackendName.EXTENDER
    dialect: ClassVar[str] = ""
    silence: ClassVar[str] = (
        "the scheduler process has not looked at it yet; if this stays, see whether covey scheduler runs"
    )
    needs_room: ClassVar[bool] = False
    has_fixed_levels: ClassVar[bool] = False

    def within(self, cluster: Cluster) -> Extender:
        """Return the same backend, with pods as this cluster takes them."""
        return Extender(cluster.evictions)

    def kinds(self) -> tuple[Resource, ...]:
        """Return Covey's own groups."""
        return _KINDS

    def probes(self) -> tuple[FieldProbe, ...]:
        """Return no probe: Covey's own kinds keep every field."""
        return ()

    def absent(self, cluster: Cluster) -> str | None:
        """Return what the cluster lacks, or None: only the kinds are needed."""
        missing = ", ".join(kind.plural for kind in _KINDS if kind in cluster.unserved)
        if not missing:
            return None
        return f"the cluster does not serve {missing} of {names.SCHEDULING_API}: install Covey's CRDs"

    def refusals(
        self,
        spec: DisaggregatedInferenceSpec,
        _levels: Levels | None,
        _cluster: Cluster,
    ) -> tuple[str, ...]:
        """Report the fields of a spec that only other backends carry."""
        if spec.disruption_mode not in {None, DisruptionMode.UNIT}:
            return (
                (
                    f"spec.disruptionMode {spec.disruption_mode} is not supported by backend Extender, which takes surplus "
                    "replicas one by one and then all of a unit: remove it, or write Unit"
                ),
            )
        return ()

    def compile(
        self,
        inference: DisaggregatedInference,
        *,
        layout: Layout | None = None,
        revision: Revision | None = None,
        levels: Levels | None = None,
    ) -> Tree:
        """Return the tree as ``compile`` gives it."""
        groups = partial(GroupCompiler, responders=(_RESPONDER,) if self.evictions else ())
        return compile_inference(inference, layout=layout, revision=revision, levels=levels, groups=groups)

    def read_back(self, inference: str, unit: int, objects: Mapping[Identity, Owned]) -> UnitReport | None:
        """Return the report of a unit; everything that the scheduler process says of it stands on its root."""
        root = objects.get((_COMPOSITE, group_name(inference, unit)))
        if root is None:
            return None
        conditions = root.status.conditions
        surplus, movable = core.condition(conditions, names.SURPLUS_ADMITTED), core.condition(conditions, names.MOVABLE)
        # What is said of the root as it was before is no advice now.
        is_current = movable is not None and (movable.observed_generation or 0) >= root.metadata.generation
        return UnitReport(
            root.metadata.uid,
            root.metadata.creation_timestamp,
            core.condition(conditions, names.ADMITTED),
            core.condition(conditions, names.TOPOLOGY_SATISFIED),
            max((placement.path for placement in root.status.placement or ()), key=len, default=()),
            movable.reason if movable is not None and is_current and movable.status == "True" else "",
            surplus.message if surplus is not None and surplus.status == "False" else "",
        )

    def in_use(self, objects: Mapping[Identity, Owned], pods: Iterable[core.Pod]) -> frozenset[Identity]:
        """Return the groups in use: pods name their group in a label, groups their parent in their spec."""
        leaves = {(_LEAF, pod.metadata.label(names.LABEL_POD_GROUP) or "") for pod in pods}
        parents = {(_COMPOSITE, owned.spec.get("parentCompositePodGroupName", "")) for owned in objects.values()}
        return frozenset(leaves | parents)

    def is_fixed(self, _stored: Owned, _wanted: Mapping[str, Any]) -> bool:
        """Return False: all that differs can be applied."""
        return False

    def fixed_fields(self, _body: Mapping[str, Any]) -> str:
        """Return an empty digest: there are no fixed fields."""
        return ""

    def release(self, _progress: ReleaseFacts) -> Release:
        """Release nobody: the scheduler process lifts its gate itself, with the pin."""
        return Release()
