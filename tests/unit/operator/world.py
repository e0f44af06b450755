"""A world for plans: what the API server would hold after some of a plan's actions, without one.

It knows only what the planner is told of: names are unique, a bound pod terminates before it goes, a gated one goes at
once. Whatever depends on Kubernetes' own behaviour is tested on a real control plane.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.core import rfc3339
from covey.api.inference import DisaggregatedInference
from covey.backends import Cluster
from covey.compile import Owner, identity_of, pod_budget
from covey.model import podstate
from covey.operator.model.actions import Actions
from covey.operator.model.capacity import AutoscalerSettings
from covey.operator.model.claimed import RootClaim
from covey.operator.model.eviction import Eviction
from covey.operator.model.node_drain import Notice
from covey.operator.model.objects import Inference
from covey.operator.model.observed import Observed, place_pods
from covey.operator.model.problem import Problem
from covey.operator.objects.drift import add_digest
from covey.operator.observe.applications import Applications
from covey.operator.observe.rollout_clock import RolloutClock
from covey.operator.plan import Plan, plan
from covey.operator.process.features import FEATURES
from covey.operator.status.status import compute
from covey.operator.status.units import describe_units
from covey.operator.validation import AcceptedSpec, read_spec, validate
from covey.placement.cluster.elastic import expand_elastic
from unit.operator.budgets import budgets_in, budgets_of
from unit.operator.stored import Stored

Step = Callable[[], None]
#: Of the one resource.
_KEY = ("default", "world")


class World(Stored):
    """One resource, what is stored of it, and its operator."""

    def __init__(self, inference: DisaggregatedInference) -> None:
        super().__init__()
        self.inference = inference
        #: UIDs of pods whose deletion was asked for, and that the watch shows as if it had not been.
        self.pending_deletions: set[str] = set()
        self.topologies: tuple[core.ClusterTopology, ...] = ()
        self.cluster = Cluster()
        self.edits: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.clock = RolloutClock()
        self.applications = Applications()
        self.notices: dict[str, Notice] = {}
        #: Evictions by UID of the pod.
        self.evictions: dict[str, Eviction] = {}
        #: The claims of others on its room, as they are stored.
        self.claims: tuple[RootClaim, ...] = ()
        #: The nodes of its pods that are known, by name.
        self.known_nodes: dict[str, core.Node] = {}
        #: Whom to ask for nodes.
        self.autoscaler: AutoscalerSettings | None = None
        #: Whether the API server knows InferencePools; None where none are made.
        self.pools: bool | None = None
        #: What the operator notes on objects is written; most tests compare pods, which then stay as they are.
        self.notes = False

    @classmethod
    def settled(cls, inference: DisaggregatedInference, *, notes: bool = False) -> Self:
        """A world in which the operator has nothing more to do; its pods wait for nodes."""
        made = cls(inference)
        made.notes = notes
        made.settle()
        return made

    @classmethod
    def serving(cls, inference: DisaggregatedInference) -> Self:
        """A world all of whose pods have nodes, and are Ready."""
        made = cls.settled(inference)
        made.serve()
        return made

    # What the operator sees

    def observe(self) -> Observed:
        placed, strays = place_pods(self.pods.values())
        return Observed(
            placed,
            strays,
            dict(self.objects),
            tuple(self.revisions),
            dict(self.tombstones),
            frozenset(self.retired),
            frozenset(self.pending_deletions),
            now=self.now,
            shared=dict(self.shared),
            scalers=dict(self.scalers),
            notices=dict(self.notices),
            evictions=dict(self.evictions),
            clock_since=self.clock.since(_KEY, self.now),
            claims=self.claims,
            nodes=dict(self.known_nodes),
            capacity=self.autoscaler,
            elastic={each.metadata.name: [*expand_elastic(each)] for each in self.topologies if each.spec.elastic},
            pools=self.pools,
            applied=self.applications.of(_KEY),
        )

    def stored(self) -> Inference:
        """The resource as the API server has it; ``edits`` are what this release would not have written."""
        meta = self.inference.metadata
        metadata = core.Meta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            generation=meta.generation,
            annotations=meta.annotations,
        )
        return Inference(metadata, {**self.inference.as_object()["spec"], **self.edits})

    def judge(self, bad_template: Problem | None = None) -> AcceptedSpec:
        observed = self.observe()
        verdict = validate(read_spec(self.stored(), self.topologies, self.cluster, observed), observed, bad_template)
        assert verdict is not None
        return verdict

    def plan(self, bad_template: Problem | None = None) -> Plan:
        observed = self.observe()
        planned = plan(self.judge(bad_template), observed, self.status, features=FEATURES)
        self.clock.note(_KEY, self.now, stands=planned.intent.stands)
        self.retire(observed, planned)
        return planned

    def tell(self) -> dict[str, Any]:
        """Compute the status, and let it be what the next plan remembers."""
        verdict, observed, planned = self.judge(), self.observe(), self.plan()
        units = tuple(describe_units(verdict.inference, verdict.backend, observed, planned))
        self.status = compute(verdict, observed, planned, units, self.status, rfc3339(self.now))
        return self.status

    def conditions(self) -> dict[str, dict[str, Any]]:
        """The conditions of the status as it is told now, by type."""
        return {each["type"]: each for each in self.tell()["conditions"]}

    def retire(self, observed: Observed, planned: Plan) -> None:
        """As ``PodExpectations`` does before a plan is carried out."""
        places = set(planned.intent.layout.slots())
        self.tombstones = {
            slot: tombstone if slot in places else dataclasses.replace(tombstone, retired=True)
            for slot, tombstone in self.tombstones.items()
        }
        going = {pod.metadata.uid for pod in self.pods.values() if pod.metadata.deletion_timestamp is not None}
        self.retired = (self.retired & going) | {
            pod.metadata.uid for slot, pods in observed.pods.items() if slot not in places for pod in pods
        }

    def forget(self) -> None:
        """The operator was restarted."""
        self.applications.forget(_KEY)
        self.clock.begin(self.now)
        self.tombstones.clear()
        self.retired.clear()

    # What the operator does

    def _apply(self, body: Mapping[str, Any]) -> None:
        key = identity_of(body)
        before = {**self.objects, **self.shared}.get(key)
        super()._apply(body)
        if before is not None:
            after = {**self.objects, **self.shared}[key]
            self.applications.note(_KEY, body, before.metadata, after.metadata, self.now)

    def steps(self, actions: Actions) -> Iterator[Step]:
        """The single writes of a plan, in order."""
        for note in actions.annotate if self.notes else ():
            yield lambda note=note: self._annotate(note)
        for relabel in (*actions.relabel, *itertools.chain(*actions.pair), *actions.protect):
            yield lambda relabel=relabel: self._relabel(relabel)
        for drain in actions.drain:
            yield lambda drain=drain: self._drain(drain)
        for serve in actions.serve:
            yield lambda serve=serve: self._serve(serve)
        for deletion in actions.delete_pods:
            yield lambda deletion=deletion: self.delete(deletion.pod.metadata.name)
        for unused in actions.delete_objects:
            yield lambda unused=unused: self._remove(unused)
        for mark in actions.mark:
            yield lambda mark=mark: self._mark(mark)
        if actions.store is not None:
            yield lambda: self._store(actions.store or {})
        for scaler in actions.scalers:
            yield lambda scaler=scaler: self._put_scaler(scaler)
        for body in itertools.chain(*actions.apply, actions.publish):
            yield lambda body=body: self._apply(body)
        for change in actions.in_place:
            yield lambda change=change: self._update_in_place(change)
        for item in actions.create:
            yield lambda item=item: self._create(item, actions)
        for ungate in actions.ungate:
            yield lambda ungate=ungate: self._ungate(ungate)
        for body in itertools.chain(*actions.ask):
            yield lambda body=body: self._apply(body)

    def carry_out(self) -> Plan:
        """Plan, and write all of it; what holds at every moment is checked after each write."""
        planned = self.plan()
        for step in self.steps(planned.actions):
            step()
            self.check()
        return planned

    def act(self, passes: int = 1) -> None:
        """So many passes: what is planned is done and told, and what terminates is gone."""
        for _ in range(passes):
            self.carry_out()
            self.tell()
            self.finish()

    def crash(self, writes: int) -> None:
        """Kill the operator after so many writes of a plan."""
        for step in itertools.islice(self.steps(self.plan().actions), writes):
            step()
            self.check()
        self.forget()

    def settle(self, passes: int = 12) -> Plan:
        """Plan and act until there is nothing to do; terminating pods go meanwhile."""
        for _ in range(passes):
            planned = self.plan()
            still = any((planned.actions, planned.actions.protect, planned.actions.ask))
            if not still and not any(pod.metadata.deletion_timestamp for pod in self.pods.values()):
                return planned
            for step in self.steps(planned.actions):
                step()
                self.check()
            self.finish()
        raise AssertionError(f"still to do after {passes} passes: {planned.actions}")

    def note(self) -> None:
        """Write what the next plan notes on objects, as often as it takes."""
        for _ in range(4):
            for action in self.plan().actions.annotate:
                self._annotate(action)

    def questions(self, actions: Actions) -> Iterator[Step]:
        """The writes of what is asked on roots."""
        for action in actions.annotate:
            if names.ANNOTATION_SUCCESSION in action.annotations:
                yield partial(self._annotate, action)

    def check(self) -> None:
        """What holds at every moment."""
        self.check_pods()
        standing = [(pod.metadata.label(names.LABEL_UNIT), name) for name, pod in self.pods.items() if _stands(pod)]
        assert len({unit for unit, _ in standing}) == len(standing), f"two pods stand for one unit: {standing}"

    def check_pods(self) -> None:
        """What holds even where the answer to a creation was lost, and its pod is not seen yet."""
        addressed: dict[str, str] = {}
        for name, pod in self.pods.items():
            if podstate.is_addressed(pod):
                address = pod.spec.hostname or ""
                assert address not in addressed, f"{address} means {addressed[address]} and {name}"
                addressed[address] = name

        budgets = budgets_in(self.objects) | budgets_in(self.shared)
        for name, pod in self.pods.items():
            assert len(found := budgets_of(pod, budgets)) <= 1, f"{name} has {found}"

    # What happens to it

    def come_from_former_release(self, *, is_alone: bool = True) -> None:
        """Budget and pods are as former releases made them; ``is_alone``: nobody in the namespace has its budget yet."""
        for name in self.pods:
            self.label(name, {names.LABEL_GANG: None})
        if is_alone:
            self.shared.clear()
        metadata, roles = self.inference.metadata, pod_budget.gang_roles(self.inference.spec)
        owner = Owner(metadata.namespace, metadata.name, metadata.uid)
        self._apply(add_digest(pod_budget.former_budget(owner, roles, narrow=False)))

    def only(self, owner: str) -> core.Pod:
        """The one pod that there is, of the namespace ``default`` and of the resource with this UID."""
        (pod,) = self.pods.values()
        reference = core.OwnerReference(name="llama", uid=owner, controller=True)
        metadata = msgspec.structs.replace(pod.metadata, namespace="default", owner_references=(reference,))
        return msgspec.structs.replace(pod, metadata=metadata)


def _stands(pod: core.Pod) -> bool:
    return pod.metadata.label(names.LABEL_UNIT_LEADER) is not None and pod.metadata.deletion_timestamp is None
