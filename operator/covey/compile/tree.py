"""The whole expansion: every object of a DisaggregatedInference, in the order in which it is created."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from covey.api.inference import DisaggregatedInference, DisaggregatedInferenceSpec
from covey.compile.environment import STANDARD_LEVELS
from covey.compile.group_hierarchy import GroupCompiler, levels_named
from covey.compile.groups import CreationLevel, Groups, Levels, Object
from covey.compile.identity import Owner, ReplicaKey, Slot, hostname
from covey.compile.layout import Layout, Scale
from covey.compile.network import NetworkCompiler
from covey.compile.pod_budget import namespace_budget, needs_budget
from covey.compile.pods import PodFactory
from covey.compile.revision import Revision


@dataclass(frozen=True)
class Tree:
    """The expansion of a resource. Pods are listed by slot; ``pods`` builds one.

    ``published`` are Services that take requests: no pod needs them to run.
    """

    owner: Owner
    layout: Layout
    revision: Revision
    levels: tuple[CreationLevel, ...]
    pods: PodFactory
    published: tuple[Object, ...] = ()

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Every pod that there shall be, in the order of creation."""
        return tuple(self.layout.slots())

    @cached_property
    def replicas(self) -> Mapping[ReplicaKey, tuple[Slot, ...]]:
        """The places of each replica, by its unit, role and number."""
        slots_of: dict[ReplicaKey, list[Slot]] = {}
        for slot in self.slots:
            slots_of.setdefault(slot[:3], []).append(slot)
        return {replica: tuple(slots) for replica, slots in slots_of.items()}

    def objects(self) -> Iterator[Object]:
        """All objects in creation order, pods under names without suffix: for printing, not for creating."""
        for level in self.levels:
            yield from level.objects
        yield from self.published
        for slot in self.slots:
            yield self.pods.build_named(slot, f"{self.owner.name}-{hostname(slot)}")


def compile_inference(
    inference: DisaggregatedInference,
    *,
    layout: Layout | None = None,
    revision: Revision | None = None,
    levels: Levels | None = None,
    groups: Callable[[Owner, DisaggregatedInferenceSpec, Revision], Groups] = GroupCompiler,
) -> Tree:
    """Expand a resource.

    Args:
        inference: the resource; its UID may be empty where the objects are only printed.
        layout: its units and replicas, with their revisions; those of a new resource when left out.
        revision: rolled fields of new replicas; the spec's own when left out.
        levels: levels of the topology in use, whose domains the containers get; the usual ones, and those that
            the spec names, when left out.
        groups: the backend's groups; Covey's own when left out.
    """
    spec, metadata = inference.spec, inference.metadata
    owner = Owner(metadata.namespace, metadata.name, metadata.uid)
    revision = Revision.of(spec) if revision is None else revision
    layout = Layout.fresh(Scale.of(spec), revision) if layout is None else layout
    level_names = dict.fromkeys((*(STANDARD_LEVELS if levels is None else levels), *levels_named(spec)))
    compiled = groups(owner, spec, revision)
    # A suspended resource gives up its place in the queue, which is the age of its groups, and needs no addresses.
    # Without units it keeps both.
    network = NetworkCompiler(owner, spec)
    services = () if spec.suspend else tuple(network.services(layout))
    published = () if spec.suspend else tuple(network.cluster_ip_services())
    budgets = (namespace_budget(owner.namespace),) if needs_budget(spec) else ()
    pods = PodFactory(owner, spec, revision, layout, compiled, tuple(level_names))
    domains = (CreationLevel("domains", tuple(pods.interconnect.domains(layout))),) if pods.interconnect else ()
    return Tree(
        owner,
        layout,
        revision,
        (*compiled.levels(layout), *domains, CreationLevel("budgets", budgets), CreationLevel("services", services)),
        pods,
        published,
    )
