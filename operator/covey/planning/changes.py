"""The first step of a rollout that a manifest asks for: where the successors of what runs would are assigned nodes.

A resource of which replicas hold places with another revision than its spec asks for keeps them; what is planned beside
it is what the rollout would begin with: the surge that ``update`` allows, else the smallest number of old replicas of a
role whose going places one successor, or one set that comes together. With ``maxUnavailable`` unset they may go down to
``minReplicas``; set, never beyond it. Where nothing helps, the rollout would hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from covey.admission.compiled_units import compiled_units, stand_in
from covey.admission.tree import Unit
from covey.api import core
from covey.api.constants import LABEL_REVISION
from covey.api.inference import DisaggregatedInference
from covey.api.roles import InPlace, Role
from covey.compile import Layout, ReplicaKey, Revision, RoleRevision, Slot, compile_inference
from covey.manifests.documents import convert
from covey.model import podstate
from covey.operator.rolling.layout import settings_of
from covey.operator.rolling.observe import describe_blocked
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Plan, Reason, Refusal, ReplicaRequest, Shape, Verdict
from covey.placement.overlay import overlay
from covey.placement.planner import plan_minimum
from covey.placement.question.demands import place
from covey.planning.report import ChangeReport, LeavingReport, PodReport, SuccessorReport
from covey.planning.resource_quotas import refuse_successors
from covey.rollout import Stage, UnitState, next_step
from covey.rollout.image_diff import differ_in_images_only
from covey.rollout.model import RoleState, RolloutBudget, RolloutReplica
from covey.rollout.window import floor

#: Pods by the place that they fill.
Existing = Mapping[Slot, core.Pod]
#: A replica of a unit: its role, and its number.
Member = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """A resource, and what runs of it with another revision than its spec asks for.

    ``outdated`` has the revisions of the replicas that do, as far as they hold places. ``store`` completes a pod that does
    not exist yet, as the API server would.
    """

    inference: DisaggregatedInference
    target: Revision
    outdated: Mapping[ReplicaKey, RoleRevision]
    existing: Existing
    created: str
    store: Callable[[core.Pod], core.Pod]


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The report on a change of a unit, and why it has no places."""

    report: ChangeReport
    reasons: tuple[Reason, ...] = ()


def find_outdated(
    existing: Existing, target: Revision, known: Mapping[tuple[str, str], RoleRevision]
) -> dict[ReplicaKey, RoleRevision]:
    """Find the replicas that hold places and are of another revision, as the labels of their pods say.

    Args:
        existing: the members of a resource.
        target: the revision that its spec asks for.
        known: stored revisions by role and hash; a replica of one that is not there has the size that it is seen with.
    """
    hashes: dict[ReplicaKey, Counter[str]] = {}
    sizes = Counter[ReplicaKey]()
    for slot, pod in existing.items():
        label = pod.metadata.label(LABEL_REVISION)
        if slot.role in target.roles and label is not None and podstate.holding(pod):
            hashes.setdefault(slot[:3], Counter())[label] += 1
            sizes[slot[:3]] = max(sizes[slot[:3]], slot.index + 1)
    revisions: dict[ReplicaKey, RoleRevision] = {}
    for key, counts in hashes.items():
        wanted, label = target.roles[key[1]], min(counts)
        if wanted.hash not in counts:
            revisions[key] = known.get((key[1], label)) or replace(wanted.of_size(sizes[key]), hash=label)
    return revisions


def is_of(pod: core.Pod, target: Revision, role: str) -> bool:
    """Tell whether a pod of a role is of a revision; one whose label was trimmed is of any."""
    return role not in target.roles or pod.metadata.label(LABEL_REVISION) in {None, target.roles[role].hash}


def expand(change: Change, layout: Layout) -> tuple[tuple[Unit, ...], dict[str, core.Pod]]:
    """The units of a layout with the pods that exist, and further ones under names without a suffix."""
    tree = compile_inference(change.inference, layout=layout, revision=change.target)
    pods = {slot: pod for slot, pod in change.existing.items() if layout.revision_of(slot) is not None}
    for slot in tree.slots:
        if slot not in pods:
            name = f"{tree.owner.name}-{slot.unit}-{slot.role}-{slot.replica}-{slot.index}"
            pod = change.store(convert(tree.pods.build_named(slot, name), core.Pod))
            uid = stand_in("pod", pod.metadata.namespace, name)
            pods[slot] = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid=uid))
    return compiled_units(tree, pods, [role.name for role in change.inference.spec.roles], change.created)


def plan_changes(
    change: Change,
    gangs: Sequence[Gang],
    build: Callable[[Unit], Gang],
    inventory: Inventory,
    refuse: Callable[[Gang, Sequence[Shape]], Refusal | None],
    quotas: Sequence[core.ResourceQuota] = (),
) -> Iterator[ChangeAnswer]:
    """Plan the first step of the rollout in each unit that runs with another revision.

    Args:
        change: the resource.
        gangs: its units, with the places that they have.
        build: makes the planner's request of a unit.
        inventory: what is free beside them; as it was afterwards.
        refuse: says why the quota of Queues does not allow these further pods to a gang, None where it does.
        quotas: the ResourceQuotas of its namespace.
    """
    for gang in gangs:
        successors = UnitSuccessors(change, gang, build, inventory, refuse, quotas)
        if answer := successors.plan():
            yield answer


class UnitSuccessors:
    """The first successors of one unit; arguments as of `plan_changes`."""

    def __init__(
        self,
        change: Change,
        gang: Gang,
        build: Callable[[Unit], Gang],
        inventory: Inventory,
        refuse: Callable[[Gang, Sequence[Shape]], Refusal | None],
        quotas: Sequence[core.ResourceQuota],
    ) -> None:
        self._change = change
        self._gang = gang
        self._build = build
        self._inventory = inventory
        self._refuse = refuse
        self._quotas = quotas
        self._placed = {
            (role.name, replica.replica): replica for role in gang.roles for replica in role.replicas if replica.placed
        }

    def plan(self) -> ChangeAnswer | None:
        """Plan them; None where the rollout has no need of places."""
        spec = self._change.inference.spec
        roles = {role.name: self._state(role) for role in spec.roles}
        changing = {name: state for name, state in roles.items() if state.outdated}
        if not changing:
            return None
        # 1. What cannot be rolled at all, and what takes no places: it is paused, partitioned or updated in place.
        if blocked := describe_blocked(roles):
            return self._hold(changing, (_reason(blocked),))
        step = next_step(UnitState(roles, stays=settings_of(spec).paused))
        came = {(name, n) for name, state in changing.items() for n in step.roles[name].keys() - state.replicas.keys()}
        if not came:
            return None
        # 2. All of the surge, else the least of it that the rollout goes on with, beside what the budget leaves.
        first = [frozenset({min(m for m in came if m[0] == name)}) for name in dict.fromkeys(name for name, _ in came)]
        least = [step.together] if step.together else first
        goes = {m for m in self._placed if m[0] in changing and m[1] not in step.roles[m[0]]}
        for members in (frozenset(came), *least):
            answer = self._ask(members, goes)
            if isinstance(answer, Plan):
                return self._come(changing, members, goes, answer)
        # 3. Old replicas go first, as few as help.
        refusals = []
        for members in least:
            answer, goes = self._make_room(members, roles)
            if isinstance(answer, Plan):
                return self._come(changing, members, goes, answer)
            refusals.append(answer)
        return self._hold(changing, refusals[0].reasons, refusals[0].verdict)

    def _make_room(
        self, members: Collection[Member], roles: Mapping[str, RoleState]
    ) -> tuple[Plan | Refusal, set[Member]]:
        """Plan successors without the fewest old replicas whose going helps; without all that may go where none does."""
        spare = {name: self._spare(name, roles[name]) for name in sorted({name for name, _ in members})}
        most = {name: len(olds) for name, olds in spare.items()}

        def ask(counts: Mapping[str, int]) -> tuple[Plan | Refusal, set[Member]]:
            goes = {member for name, olds in spare.items() for member in olds[: counts[name]]}
            return self._ask(members, goes), goes

        answer, goes = ask(most)
        if isinstance(answer, Refusal):
            return answer, goes
        # As many of each role as of the others, and then of each as few as still help.
        counts = next(
            counts
            for count in range(max(most.values()) + 1)
            if isinstance(ask(counts := {name: min(count, of) for name, of in most.items()})[0], Plan)
        )
        for name, count in counts.items():
            fewer = ({**counts, name: less} for less in range(count))
            counts = next((candidate for candidate in fewer if isinstance(ask(candidate)[0], Plan)), counts)
        return ask(counts)

    def _state(self, role: Role) -> RoleState:
        """The role as if all that has places served."""
        target = self._change.target.roles[role.name]
        in_place = role.update is not None and role.update.in_place is InPlace.IF_POSSIBLE
        replicas = {}
        for name, number in self._placed:
            if name == role.name:
                revision = self._change.outdated.get((self._gang.unit, name, number), target)
                updatable = in_place and differ_in_images_only(revision, target)
                replicas[number] = RolloutReplica(revision, Stage.SERVING, updatable=updatable)
        wanted = next((request.desired for request in self._gang.roles if request.name == role.name), role.replicas)
        return RoleState(target, wanted, role.min_replicas, RolloutBudget.of(role, wanted), replicas)

    def _spare(self, name: str, state: RoleState) -> list[Member]:
        """The old replicas of a role that may go for a successor, in the order in which they go."""
        least = state.minimum if state.budget.unavailable is None else floor(state)
        numbers = sorted(state.outdated, reverse=True)
        return [(name, number) for number in numbers[: max(0, len(state.replicas) - least)]]

    def _ask(self, members: Collection[Member], goes: Collection[Member]) -> Plan | Refusal:
        """Plan successors, all or none, beside what runs without those that go."""
        change, unit = self._change, self._gang.unit
        roles: dict[str, dict[int, RoleRevision]] = {name: {} for name in change.target.roles}
        for name, number in sorted({*members, *(self._placed.keys() - goes)}):
            if name in roles:
                target = change.target.roles[name]
                roles[name][number] = change.outdated.get((unit, name, number), target)
        made, pods = expand(change, Layout({unit: roles}))
        nodes = {pod.key: pod.node for m, replica in self._placed.items() if m not in goes for pod in replica.pods}
        gang = place(self._build(made[0]), {key: node for key, node in nodes.items() if node is not None})
        gang = replace(
            gang,
            roles=tuple(
                replace(role, minimum=len(role.replicas), desired=max(role.desired, len(role.replicas)), missing=None)
                for role in gang.roles
            ),
        )
        wanted = [
            replica for role in gang.roles for replica in role.replicas if (role.name, replica.replica) in members
        ]
        freed = [self._placed[m] for m in goes]
        if not _covers(freed, wanted) and (refusal := self._refuse(self._gang, [*_shapes(wanted)])):
            return refusal
        existing = {pod.metadata.uid: pod for pod in change.existing.values()}
        coming = [pods[pod.key] for replica in wanted for pod in replica.pods if pod.key not in existing]
        going = [existing[pod.key] for replica in freed for pod in replica.pods if pod.key in existing]
        if self._quotas and (refusal := refuse_successors(self._quotas, coming, going)):
            return refusal
        with overlay(self._inventory) as changes:
            changes.remove(pod.key for replica in freed for pod in replica.pods)
            return plan_minimum(gang, self._inventory)

    def _come(
        self, changing: Collection[str], members: Collection[Member], goes: Collection[Member], plan: Plan
    ) -> ChangeAnswer:
        unit, meta = self._gang.unit, self._change.inference.metadata
        nodes = {assignment.pod: assignment.node for assignment in plan.assignments}
        successors = []
        for name, number in sorted(members):
            pods = []
            for index in range(self._change.target.roles[name].size):
                pod = self._change.existing.get(Slot(unit, name, number, index))
                title = pod.metadata.name if pod else f"{meta.name}-{unit}-{name}-{number}-{index}"
                key = pod.metadata.uid if pod else stand_in("pod", meta.namespace, title)
                pods.append(PodReport(index, title, nodes[key]))
            successors.append(SuccessorReport(name, number, tuple(pods)))
        when = f"once {_count(goes)} of the old revision {'has' if len(goes) == 1 else 'have'} gone"
        message = f"the rollout would begin with {_count(members)}, {when if goes else 'beside what runs'}"
        return ChangeAnswer(self._report(changing, Verdict.ADMITTED, message, tuple(successors), goes))

    def _hold(
        self, changing: Collection[str], reasons: tuple[Reason, ...], verdict: Verdict = Verdict.INFEASIBLE
    ) -> ChangeAnswer:
        message = f"the rollout of {', '.join(changing)} would hold, and what runs stays"
        reasons = tuple(replace(reason, message=f"{message}: {reason.message}") for reason in reasons)
        return ChangeAnswer(self._report(changing, verdict, message), reasons)

    def _report(
        self,
        changing: Collection[str],
        verdict: Verdict,
        message: str,
        successors: tuple[SuccessorReport, ...] = (),
        goes: Collection[Member] = (),
    ) -> ChangeReport:
        meta = self._change.inference.metadata
        leaving = tuple(LeavingReport(name, number) for name, number in sorted(goes))
        return ChangeReport(
            meta.namespace, meta.name, self._gang.unit, verdict.value, tuple(changing), successors, leaving, message
        )


def _reason(message: str) -> Reason:
    return Reason("", "unit", None, (), 0, 0, None, None, None, (), message)


def _count(members: Collection[Member]) -> str:
    return " and ".join(f"{count} {name}" for name, count in sorted(Counter(name for name, _ in members).items()))


def _shapes(replicas: Collection[ReplicaRequest]) -> Iterator[Shape]:
    return (pod.shape for replica in replicas for pod in replica.pods)


def _covers(freed: Collection[ReplicaRequest], wanted: Collection[ReplicaRequest]) -> bool:
    """Tell whether what goes gives back as much of everything as is asked for."""
    given, asked = Counter[str](), Counter[str]()
    for sums, replicas in ((given, freed), (asked, wanted)):
        for shape in _shapes(replicas):
            sums.update(dict(shape.requests))
    return asked <= given
