"""Moves that would free whole domains, or start a gang that waits: a dry run, pure.

Each prefix of the moves is a state that may stay (``moves``). A replica goes where the planner puts it, with the levels
that its unit requires; all of a unit goes together where its replicas may not part. Ordinary pods never move.

The number of moves is proven least where nothing with fewer can do: each replica in a domain that is to be free has to
leave it, and a gang that has no room without some replicas has none beside them either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from covey.admission.elsewhere import MOVED, domain_of, plan_elsewhere
from covey.admission.moves import KEPT, PLANS, Mover, ReplicaMove, Run, StuckError, keep_room
from covey.admission.preemption import search
from covey.admission.reprieve import Judge, OutOfPlansError, least_of
from covey.admission.taking import Nobody, Rules
from covey.admission.victims import Candidate, Caps, Offer, Step, Terms, devices_of, is_eligible, sum_held
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode, NodeState
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.node_filters import state_cause
from covey.placement.model import Gang, Path, Verdict
from covey.placement.overlay import Overlay, overlay
from covey.placement.planner import LIMIT

#: Domains that are tried; sets of replicas that a gang's room is looked for with.
DOMAINS: Final = 8
_ROUNDS: Final = 6
#: Plans that may prove that fewer moves do not suffice.
_PROOF: Final = 64


@dataclass(frozen=True, slots=True)
class Mobile:
    """A unit as it lies, and its gang with the places of its pods."""

    candidate: Candidate
    gang: Gang


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Moves in their order, and what is free after them, or where the gang lies then.

    ``verdict``: Admitted (no moves where none are needed), Infeasible (proven that none help), Unknown (none were found).
    ``least``: it is proven that no fewer do.
    """

    verdict: Verdict
    moves: tuple[ReplicaMove, ...] = ()
    paths: tuple[Path, ...] = ()
    nodes: tuple[str, ...] = ()
    least: bool = False


def is_free(domain: DomainNode) -> bool:
    """Tell whether nothing that takes devices lies in a domain, and pods may go to all of its nodes."""
    return not domain.broken and bool(domain.nodes) and all(map(_is_open, domain.nodes.values()))


class Consolidation:
    """Answers about one inventory, which nobody else may look at meanwhile, and which is as it was after each.

    Args:
        inventory: what is free.
        mobiles: units of which replicas may move.
        leaving: keys of pods that go anyway.
    """

    def __init__(self, inventory: Inventory, mobiles: Iterable[Mobile], leaving: Collection[str] = ()) -> None:
        self._inventory = inventory
        self._leaving = leaving
        self._resource = resources.measure({}, inventory.offered())
        self._mobiles = {mobile.candidate.unit.key: mobile for mobile in mobiles if _may_move(mobile)}
        self._movers = {
            key: mover for mobile in self._mobiles.values() for mover in self._of(mobile) for key in mover.keys
        }

    def free(self, topology: str, level: str, count: int = 1, *, more: bool = False) -> MovePlan:
        """Find moves after which so many domains of a level are free; or so many more than are without any."""
        with overlay(self._inventory) as changes:
            changes.remove(self._leaving)
            return self._free(topology, level, count, more=more)

    def _free(self, topology: str, level: str, count: int, *, more: bool) -> MovePlan:
        tree = self._inventory.trees[topology]
        every = list(tree.at(tree.topology.depth(level)))
        there = [domain for domain in every if is_free(domain)]
        lacking = count if more else count - len(there)
        if lacking <= 0:
            return MovePlan(Verdict.ADMITTED, paths=tuple(domain.path for domain in there), least=True)
        movers_of = {
            domain.path: movers for domain in every if domain not in there and (movers := self._movers_in(domain))
        }
        closed = {name for domain in there for name in domain.nodes}
        free = Counter[str]()
        for state in self._inventory.nodes.values():
            free.update(_devices_in(state.free))
        usable = [
            path
            for path in movers_of
            if self._may_hold(movers_of[path], closed | tree.by_path[path].nodes.keys(), free)
        ]
        usable.sort(key=lambda path: (_price(movers_of[path]), [value or "" for value in path]))
        best: MovePlan | None = None
        bound = len(movers_of[usable[lacking - 1]]) if len(usable) >= lacking else 0
        for start in range(min(DOMAINS, len(usable) - lacking + 1)):
            if best is not None and (len(best.moves) <= bound or len(movers_of[usable[start]]) >= len(best.moves)):
                break
            moved = self._free_all([tree.by_path[path] for path in usable[start:]], lacking, closed)
            if moved is not None and (best is None or len(moved[0]) < len(best.moves)):
                freed = (*(domain.path for domain in there if not more), *moved[1])
                best = MovePlan(Verdict.ADMITTED, moved[0], freed, least=len(moved[0]) == bound)
        if best is not None:
            return best
        return MovePlan(Verdict.UNKNOWN if len(usable) >= lacking else Verdict.INFEASIBLE)

    def start(self, gang: Gang) -> MovePlan:
        """Find moves after which the minimum of a gang has its room."""
        own = {pod.key for role in gang.roles for replica in role.replicas for pod in replica.pods}
        banned: set[str] = set()
        for _ in range(_ROUNDS):
            steps = self._search(gang, banned | own, PLANS)
            if isinstance(steps, Nobody):
                is_known = steps.verdict is Verdict.ADMITTED or not banned
                return MovePlan(steps.verdict if is_known else Verdict.UNKNOWN, least=steps.verdict is Verdict.ADMITTED)
            movers = {mover.keys: mover for step in steps for mover in [self._movers[step.keys[0]]]}
            with overlay(self._inventory) as changes:
                changes.remove(self._leaving)
                run = self._run(changes)
                try:
                    nodes = keep_room(gang, self._inventory, changes, [key for keys in movers for key in keys])
                    run.clear(list(movers.values()), gang.excluded_nodes)
                except StuckError as error:
                    banned |= error.keys
                    if not error.keys:
                        break
                    continue
                moves = tuple(run.moves)
            return MovePlan(Verdict.ADMITTED, moves, nodes=nodes, least=self._is_least(gang, len(moves), own))
        return MovePlan(Verdict.UNKNOWN)

    def widen(self, gang: Gang) -> MovePlan:
        """Find the moves of a unit to another domain of its required level in which its surplus has room, too.

        All of it goes together. Others do not make room for it.
        """
        mobile = next((other for other in self._mobiles.values() if other.gang.uid == gang.uid), None)
        if mobile is None:
            return MovePlan(Verdict.UNKNOWN)
        with overlay(self._inventory) as changes:
            changes.remove(self._leaving)
            plan = plan_elsewhere(gang, self._inventory)
            if plan is None:
                return MovePlan(Verdict.UNKNOWN)
            own = {
                pod.key
                for role in mobile.gang.roles
                for replica in role.replicas
                if replica.placed
                for pod in replica.pods
            }
            pods = {pod.key: pod for role in gang.roles for replica in role.replicas for pod in replica.pods}
            for assignment in plan.assignments:
                key = assignment.pod.removeprefix(MOVED)
                if key not in own:
                    changes.hold(f"kept/{key}", assignment.node, pods[key].shape, pods[key].meta)
            target = domain_of(plan, gang)
            inside = self._inventory.trees[gang.topology].by_path[target].nodes
            closed = {name: KEPT for name in self._inventory.nodes if name not in inside}
            run = self._run(changes)
            members = {
                (role.name, replica.replica)
                for role in mobile.gang.roles
                for replica in role.replicas
                if role.follow_unit and replica.placed
            }
            moved = all(key in self._movers for key in own) and run.try_move(mobile.candidate.unit.key, members, closed)
            return MovePlan(Verdict.ADMITTED, tuple(run.moves), (target,)) if moved else MovePlan(Verdict.UNKNOWN)

    def _search(self, gang: Gang, spared: Collection[str], plans: int) -> Sequence[Step] | Nobody:
        rules = Rules(
            lambda _candidate: True, lambda _candidate: 0, lambda step: not set(step.keys) & {*spared}, self._offer
        )
        candidates = [mobile.candidate for mobile in self._mobiles.values()]
        targets = search(gang, self._inventory, candidates, Terms(0.0), rules, freeing=self._leaving, plans=plans)
        return targets if isinstance(targets, Nobody) else targets.steps

    def _offer(self, candidate: Candidate, inventory: Inventory, terms: Terms) -> Offer:
        """Every replica that has its places may leave them; one of a minimum counts as longer in service."""
        steps = [
            replace(
                Step(
                    "Replica", mover.unit, candidate.resource[1], candidate.unit.index, mover.keys, candidate.priority
                ),
                role=mover.role,
                replica=mover.replica,
                count=held[terms.resource],
                devices=devices_of(held),
                served=0.0 if mover.surplus else 60.0,
            )
            for mover in self._of(self._mobiles[candidate.unit.key])
            for held in [sum_held(mover.keys, inventory)]
        ]
        many = Caps(len(steps), len(steps))
        return Offer(tuple(steps), {step.role: many for step in steps})

    def _of(self, mobile: Mobile) -> Iterator[Mover]:
        for role in mobile.gang.roles:
            placed = [replica for replica in role.replicas if replica.placed]
            for each in placed:
                keys = tuple(pod.key for pod in each.pods)
                if not any(key in self._leaving or self._inventory.hold_of(key) is None for key in keys):
                    devices = sum_held(keys, self._inventory)[self._resource]
                    surplus = len(placed) > role.minimum
                    yield Mover(mobile.candidate.unit.key, role.name, each.replica, keys, devices, surplus)

    def _movers_in(self, domain: DomainNode) -> list[Mover]:
        """The replicas that have to leave a domain for it to be free; none where something else lies there."""
        movers: dict[tuple[str, ...], Mover] = {}
        for state in domain.nodes.values():
            if not _is_open(state):
                return []
            for key in state.held if state.in_use else ():
                if not state.is_used_by(state.held[key].shape) or key in self._leaving:
                    continue
                if key not in self._movers:
                    return []
                movers[self._movers[key].keys] = self._movers[key]
        return list(movers.values())

    def _may_hold(self, movers: Sequence[Mover], closed: Collection[str], free: Counter[str]) -> bool:
        """Tell whether the devices of what has to leave some nodes are free elsewhere: moves leave their sum as it is."""
        need = Counter[str]()
        for key in (key for mover in movers for key in mover.keys):
            held = self._inventory.hold_of(key)
            if held is not None and held[0] in closed:
                need.update(_devices_in(dict(held[1].shape.requests)))
        for name in closed if need else ():
            need.update(_devices_in(self._inventory.nodes[name].free))
        return all(free[name] >= amount for name, amount in need.items())

    def _free_all(
        self, domains: Sequence[DomainNode], count: int, closed: Collection[str]
    ) -> tuple[tuple[ReplicaMove, ...], list[Path]] | None:
        """Free the first so many of some domains, one after another; None where that was not found."""
        kept, freed = dict.fromkeys(closed, KEPT), list[Path]()
        with overlay(self._inventory) as changes:
            run = self._run(changes)
            for domain in domains[:count]:
                try:
                    run.clear(self._movers_in(domain), kept | dict.fromkeys(domain.nodes, KEPT))
                except StuckError:
                    return None
                if not is_free(domain):
                    return None
                kept |= dict.fromkeys(domain.nodes, KEPT)
                freed.append(domain.path)
            return tuple(run.moves), freed

    def _is_least(self, gang: Gang, moves: int, spared: Collection[str]) -> bool:
        """Prove that a gang has no room without any fewer replicas, wherever they might go."""
        every = {mover.keys: mover for mover in self._movers.values() if not set(mover.keys) & {*spared}}
        judge = Judge(least_of(gang), self._inventory, LIMIT, _PROOF)
        try:
            with overlay(self._inventory) as changes:
                changes.remove(self._leaving)
                sets = combinations(every, moves - 1)
                answers = (judge.plan(key for keys in chosen for key in keys) for chosen in sets)
                return all(answer.verdict is Verdict.INFEASIBLE for answer in answers)
        except OutOfPlansError:
            return False

    def _run(self, changes: Overlay) -> Run:
        gangs = {key: mobile.gang for key, mobile in self._mobiles.items()}
        return Run(self._inventory, changes, gangs, self._movers, self._helpers)

    def _helpers(self, gang: Gang, spared: Collection[str]) -> list[Mover]:
        """The replicas that would have to leave for a gang to have room."""
        steps = self._search(gang, spared, PLANS // 8)
        return [] if isinstance(steps, Nobody) else [self._movers[step.keys[0]] for step in steps]


def _may_move(mobile: Mobile) -> bool:
    spread = mobile.gang.spread
    return is_eligible(mobile.candidate) and not (spread is not None and spread.required)


def _price(movers: Sequence[Mover]) -> tuple[int, int, int]:
    return len(movers), sum(not mover.surplus for mover in movers), sum(mover.devices for mover in movers)


def _devices_in(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: max(amount, 0) for name, amount in amounts.items() if resources.is_extended(name)}


def _is_open(state: NodeState) -> bool:
    return state_cause(state.node) is None
