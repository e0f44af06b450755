"""Random trees of groups as API objects, through the translation to the planner, against a solver and a checker.

Solver and checker know nothing of roles and replicas: they read the groups as the API means them. The tree is drawn as
a blueprint; its groups are read from JSON, its pods are ``core.Pod`` without any label of the operator's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
from ortools.sat.python import cp_model

from covey.admission import gangs
from covey.admission.gangs import Surroundings, build_gang
from covey.admission.tree import Unit, build_unit
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.cluster.shape import shape_of
from covey.placement.model import Gang, Level, Path, Plan, Topology, Verdict
from covey.placement.question.demands import minimum_demands
from covey.placement.question.minimum_choice import RULES, count_costly_rules, look
from oracle import facts
from oracle.written import GPU, node, shape
from rounds import plan_round

TOPOLOGY = Topology("floor", (Level("zone", ("zone",)), Level("block", ("block",)), Level("rack", ("rack",))))
LEVELS = ("zone", "block", "rack")
#: What the solver may do before it gives up.
EFFORT = 0.05
#: Kinds of replica up to which the planner is asked to be exact.
EXACT = 3
GATE = {"name": "scheduling.covey.dev/gang"}


@dataclass(slots=True)
class Branch:
    """A group. ``count`` None is ``basic``; a leaf has pods that all ask for the same."""

    name: str
    count: int | None
    required: str | None = None
    preferred: str | None = None
    children: list[Branch] = field(default_factory=list)
    gpus: int = 0
    pods: list[str] = field(default_factory=list)

    def narrows(self, root: Branch) -> bool:
        """Its required level adds to those above it: one that is no narrower does not."""
        above = (each for each in root.walk() if each is not self and any(below is self for below in each.walk()))
        most = max((LEVELS.index(each.required) for each in above if each.required is not None), default=-1)
        return self.required is not None and LEVELS.index(self.required) > most

    @property
    def leaf(self) -> bool:
        """It is a PodGroup."""
        return self.gpus > 0

    def walk(self) -> Iterator[Branch]:
        """It and all below."""
        yield self
        for child in self.children:
            yield from child.walk()

    def members(self) -> list[str]:
        """All pods below."""
        return [pod for each in self.walk() for pod in each.pods]


@dataclass(frozen=True, slots=True)
class Wood:
    """A tree on a cluster. ``places`` are the nodes of pods that are bound, ``used`` the GPUs that strangers hold."""

    root: Branch
    nodes: tuple[core.Node, ...]
    used: Mapping[str, int]
    places: Mapping[str, str]

    def path(self, name: str) -> Path | None:
        """The path of a node; None when it is gone."""
        found = next((each for each in self.nodes if each.metadata.name == name), None)
        return None if found is None else facts.path_of(TOPOLOGY, found)

    def free(self, places: Mapping[str, str]) -> dict[str, int]:
        """The GPUs that are free beside strangers and these pods."""
        ask = {pod: leaf.gpus for leaf in self.root.walk() for pod in leaf.pods}
        left = {each.metadata.name: facts.allocatable(each).get(GPU, 0) for each in self.nodes}
        for name, gpus in self.used.items():
            left[name] -= gpus
        for pod, name in places.items():
            if name in left:
                left[name] -= ask[pod]
        return left

    def domains(self, branch: Branch, places: Mapping[str, str]) -> set[Path | None]:
        """The domains of a group's required level that its placed pods lie in."""
        depth = LEVELS.index(branch.required or "")
        paths = (self.path(places[pod]) for pod in branch.members() if pod in places)
        return {facts.domain(path, depth) for path in paths if path is not None}


# --- drawing


def draw(seed: int) -> Wood:
    """The tree of a seed."""
    random = Random(seed)
    nodes, used = _cluster(random)
    root = _composite(random, "t", 1, random.choice((2, 3, 4)))
    root.count = root.count or (random.randint(1, len(root.children)) if random.random() < 0.7 else None)
    wood = Wood(root, nodes, used, {})
    roll = random.random()
    if roll < 0.4:
        places = {
            pod: name for pod, name in _planned(wood).items() if random.random() < random.choice((0.5, 0.8, 0.95))
        }
        lost = {each.metadata.name for each in nodes if random.random() < 0.05}
        wood = Wood(root, nodes, used, {pod: name for pod, name in places.items() if name not in lost})
    elif roll < 0.5:
        left = wood.free({})
        places = {}
        for leaf in root.walk():
            for pod in leaf.pods:
                room = [name for name, gpus in left.items() if gpus >= leaf.gpus]
                if room and random.random() < 0.25:
                    places[pod] = random.choice(room)
                    left[places[pod]] -= leaf.gpus
        wood = Wood(root, nodes, used, places)
    if places_of := dict(wood.places):
        gpus = {pod: leaf.gpus for leaf in root.walk() for pod in leaf.pods}
        more = dict(used)
        left = wood.free(places_of)
        for pod in set(_planned(Wood(root, nodes, used, {})).keys()) - places_of.keys():
            name = random.choice(list(left))
            if random.random() < 0.2 and left[name] >= gpus[pod]:
                more[name] = more.get(name, 0) + gpus[pod]
                left[name] -= gpus[pod]
        wood = Wood(root, nodes, more, places_of)
    return wood


def _cluster(random: Random) -> tuple[tuple[core.Node, ...], dict[str, int]]:
    nodes: list[core.Node] = []
    used: dict[str, int] = {}
    small = random.random() < 0.3
    load = random.choice((0.0, 0.2, 0.5))
    for zone in range(random.choice((1, 1, 2))):
        for block in range(random.randint(1, 3)):
            for rack in range(random.randint(1, 3)):
                for number in range(random.randint(1, 3)):
                    labels = {"zone": f"z{zone}", "block": f"b{block}", "rack": f"r{rack}"}
                    if random.random() < 0.04:
                        labels.pop(random.choice(("block", "rack")))
                    name = f"z{zone}-b{block}-r{rack}-n{number}"
                    gpus = 4 if small and random.random() < 0.5 else 8
                    nodes.append(node(name, labels, gpus=gpus))
                    if random.random() < load:
                        used[name] = random.randint(1, gpus)
    return tuple(nodes), used


def _level(random: Random, percent: int) -> tuple[str | None, str | None]:
    required = random.choice(LEVELS) if random.random() * 100 < percent else None
    finer = LEVELS[LEVELS.index(required) + 1 :] if required else LEVELS
    preferred = random.choice(finer) if finer and random.random() < 0.1 else None
    return required, preferred


def _composite(random: Random, name: str, depth: int, deepest: int) -> Branch:
    kinds = random.choice((1, 1, 2, 3) if depth == 1 else (1, 1, 2))
    found: list[Branch] = []
    for kind in range(kinds):
        deep = depth + 1 < deepest and random.random() < 0.65
        base = f"{name}-{'abc'[kind]}"
        first = _composite(random, base, depth + 1, deepest) if deep else _leaf(random, base)
        copies = random.choice((1, 2, 2, 3)) if not deep else random.choice((1, 2))
        found += [_copy(first, base, f"{base}{number}") for number in range(copies)]
        if first.leaf and random.random() < 0.1 and found[-1].pods:
            found[-1].pods.pop()
    gang = sum(child.count is not None for child in found)
    count = random.randint(1, gang) if gang and random.random() < 0.4 else gang or None
    if count and random.random() < 0.03:
        count += 1
    return Branch(name, None if random.random() < 0.08 else count, *_level(random, 45), found)


def _leaf(random: Random, name: str) -> Branch:
    count = random.choice((1, 1, 2, 2, 3))
    pods = count + random.choice((0, 0, 0, 1, 2))
    gpus = random.choice((8, 8, 4, 2, 1, 3))
    policy = None if random.random() < 0.12 else count
    return Branch(name, policy, *_level(random, 45), [], gpus, [f"{name}.{number}" for number in range(pods)])


def _copy(branch: Branch, old: str, new: str) -> Branch:
    def named(text: str) -> str:
        return new + text[len(old) :]

    return Branch(
        named(branch.name),
        branch.count,
        branch.required,
        branch.preferred,
        [_copy(child, old, new) for child in branch.children],
        branch.gpus,
        [named(pod) for pod in branch.pods],
    )


# --- as API objects


def unit_of(wood: Wood) -> Unit:
    """The tree as admission sees it."""
    groups: dict[str, core.Group] = {}
    below: dict[str, list[core.Group]] = {}
    pods: dict[str, list[core.Pod]] = {}
    for branch, parent in _with_parents(wood.root, None):
        group = msgspec.convert(_group(branch, parent), core.Group)
        groups[branch.name] = group
        below.setdefault(parent or "", []).append(group)
        pods[branch.name] = [msgspec.convert(_pod(wood, branch, pod), core.Pod) for pod in branch.pods]
    return build_unit(
        groups[wood.root.name],
        lambda group: below.get(group.metadata.name, []),
        lambda group: pods[group.metadata.name],
    )


def _with_parents(branch: Branch, parent: str | None) -> Iterator[tuple[Branch, str | None]]:
    yield branch, parent
    for child in branch.children:
        yield from _with_parents(child, branch.name)


def _group(branch: Branch, parent: str | None) -> dict[str, Any]:
    field_name = "minCount" if branch.leaf else "minGroupCount"
    topology = [
        {"key" if number else "level": level, "mode": mode}
        for number, (level, mode) in enumerate(((branch.required, "Required"), (branch.preferred, "Preferred")))
        if level
    ]
    return {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "PodGroup" if branch.leaf else "CompositePodGroup",
        "metadata": {"name": branch.name, "namespace": "default", "uid": f"group-{branch.name}"},
        "spec": {
            "schedulingPolicy": {"gang": {field_name: branch.count}} if branch.count else {"basic": {}},
            **({"parentCompositePodGroupName": parent} if parent else {}),
            **({"schedulingConstraints": {"topology": topology}} if topology else {}),
        },
    }


def _pod(wood: Wood, leaf: Branch, name: str) -> dict[str, Any]:
    place = wood.places.get(name)
    resources = {"requests": {"cpu": "1", GPU: str(leaf.gpus)}, "limits": {GPU: str(leaf.gpus)}}
    return {
        "metadata": {
            "name": name.replace(".", "-"),
            "namespace": "default",
            "uid": name,
            "labels": {"scheduling.covey.dev/pod-group": leaf.name},
        },
        "spec": {
            "containers": [{"name": "main", "resources": resources}],
            **({"nodeName": place} if place else {"schedulingGates": [GATE]}),
        },
        "status": {"phase": "Running" if place else "Pending"},
    }


def gang_of(unit: Unit) -> Gang:
    """The planner's request."""
    return build_gang(unit, TOPOLOGY, shape_of, Surroundings())


def inventory_of(wood: Wood) -> Inventory:
    """The cluster with strangers and bound members."""
    made = Inventory([TOPOLOGY])
    for each in wood.nodes:
        made.set_node(each)
    for name, gpus in wood.used.items():
        made.hold(f"stranger-{name}", name, shape(gpus, 1, 0))
    for leaf in wood.root.walk():
        for pod in leaf.pods:
            if pod in wood.places:
                made.hold(pod, wood.places[pod], shape(leaf.gpus, 1, 0))
    return made


def _planned(wood: Wood) -> Mapping[str, str]:
    unit = unit_of(wood)
    gang = gang_of(unit)
    if unit.absent or gangs.missing(unit, gang):
        return {}
    (outcome,) = plan_round([gang], inventory_of(wood))
    return outcome.assignments


# --- the solver


def progress(wood: Wood, branch: Branch) -> int:
    """How far a group is: all it needs has a place, some, nothing."""
    if _satisfied(branch, wood.places):
        return 0
    return 1 if any(pod in wood.places for pod in branch.members()) else 2


def _satisfied(branch: Branch, placed: Mapping[str, str] | list[str]) -> bool:
    if branch.count is None:
        return False
    if branch.leaf:
        return sum(pod in placed for pod in branch.pods) >= branch.count
    return sum(_satisfied(child, placed) for child in branch.children) >= branch.count


def feasible(wood: Wood) -> bool | None:
    """Whether the minimum of the root fits, by constraint programming over the groups; None: the solver gave up."""
    if wood.root.count is None:
        return True
    model = cp_model.CpModel()
    left = wood.free(wood.places)
    counts: dict[tuple[str, str], Any] = {}
    needed: dict[str, Any] = {}
    everything = wood.root.members()
    for branch in wood.root.walk():
        needed[branch.name] = model.new_bool_var("")
        if branch.leaf:
            bound = sum(pod in wood.places for pod in branch.pods)
            lack = max((branch.count or 0) - bound, 0)
            for name in left:
                counts[branch.name, name] = model.new_int_var(0, lack, "")
            total = sum(counts[branch.name, name] for name in left)
            possible = branch.count is not None and len(branch.pods) >= branch.count
            model.add(total == lack * needed[branch.name])
            if not possible:
                model.add(needed[branch.name] == 0)
    model.add(needed[wood.root.name] == 1)
    for branch in wood.root.walk():
        if branch.leaf:
            continue
        gang = [child for child in branch.children if child.count is not None]
        if branch.count is None:
            model.add(needed[branch.name] == 0)
            continue
        model.add(sum(needed[child.name] for child in gang) >= branch.count).only_enforce_if(needed[branch.name])
        whole = [child for child in gang if _satisfied(child, everything)]
        touched = sorted((progress(wood, child), number) for number, child in enumerate(whole))
        first = [number for state, number in touched if state < 2][: branch.count]
        for number in first:  # bound ones first
            model.add_implication(needed[branch.name], needed[whole[number].name])
    for name, gpus in left.items():
        model.add(sum(leaf.gpus * counts[leaf.name, name] for leaf in wood.root.walk() if leaf.leaf) <= max(gpus, 0))
    for branch in wood.root.walk():
        if branch.narrows(wood.root):
            _confine(wood, branch, model, counts, list(left))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = EFFORT
    status = solver.solve(model)
    return {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)


def _confine(wood: Wood, branch: Branch, model: cp_model.CpModel, counts: Mapping[Any, Any], names: list[str]) -> None:
    depth = LEVELS.index(branch.required or "")
    taken = wood.domains(branch, wood.places)
    own = {name: facts.domain(wood.path(name) or (), depth) for name in names}
    here = {domain: model.new_bool_var("") for domain in {*own.values()} if domain is not None}
    model.add(sum(here.values()) <= 1)
    for leaf in branch.walk():
        for name in names if leaf.leaf else ():
            domain = own[name]
            if domain is None or len(taken) > 1 or (taken and domain not in taken):
                model.add(counts[leaf.name, name] == 0)
            else:
                model.add(counts[leaf.name, name] == 0).only_enforce_if(~here[domain])


# --- the checker


def violations(wood: Wood, new: Mapping[str, str], *, admitted: bool) -> list[str]:
    """What is wrong with placing these pods beside those that are bound."""
    if not admitted:
        return ["pods of a refused tree are placed"] if new else []
    after = {**wood.places, **new}
    found = [
        f"{name} is over-committed" for name, gpus in wood.free(after).items() if gpus < 0 and name in new.values()
    ]
    found += [f"{pod} is moved" for pod in new if pod in wood.places]
    if wood.root.count is not None and not _satisfied(wood.root, after):
        found.append("the root's minimum is not placed")
    for branch in wood.root.walk():
        if not any(pod in new for pod in branch.members()):
            continue
        if branch.narrows(wood.root) and (len(domains := wood.domains(branch, after)) > 1 or None in domains):
            found.append(f"{branch.name} is not in one {branch.required}: {domains}")
        if branch.count is not None and not _satisfied(branch, after):
            found.append(f"{branch.name} is placed without its minimum")
    return found + list(_left_out(wood, after))


def _left_out(wood: Wood, after: Mapping[str, str]) -> Iterator[str]:
    """Single pods of satisfied groups that a node would still take."""
    left = wood.free(after)

    def look(branch: Branch, above: list[Branch]) -> Iterator[str]:
        if branch.count is not None and not _satisfied(branch, after):
            return
        for child in branch.children:
            yield from look(child, [*above, branch])
        if branch.leaf and any(pod not in after for pod in branch.pods):
            for name, gpus in left.items():
                if gpus >= branch.gpus and all(_joins(wood, each, name, after) for each in [*above, branch]):
                    yield f"{branch.name} has a pod left that {name} would take"
                    return

    yield from look(wood.root, [])


def _joins(wood: Wood, branch: Branch, name: str, after: Mapping[str, str]) -> bool:
    if not branch.narrows(wood.root):
        return True
    own = facts.domain(wood.path(name) or (), LEVELS.index(branch.required or ""))
    return own is not None and wood.domains(branch, after) <= {own}


# --- both together


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What planner and solver say of a tree, and what is wrong."""

    planner: Verdict | None
    feasible: bool | None
    complaints: tuple[str, ...]
    #: The planner need not be exact: it guessed, or there are more rules or kinds than the exact method takes.
    open: bool = False


def judge(seed: int) -> Verdicts:
    """Plan the tree of a seed, and compare."""
    wood = draw(seed)
    possible = feasible(wood)
    unit = unit_of(wood)
    assert unit.problem is None, unit.problem
    gang = gang_of(unit)
    waits = unit.absent or gangs.missing(unit, gang)
    if waits:
        return Verdicts(None, possible, ("waits, though the minimum fits",) if possible else ())
    (outcome,) = plan_round([gang], inventory_of(wood))
    admitted = isinstance(outcome.minimum, Plan)
    found = violations(wood, outcome.assignments, admitted=admitted)
    needed = minimum_demands(gang)
    kinds = {(gang.roles[demand.role].required, look(demand.replica)) for demand in needed}
    open_ = (
        bool(gang.guessed)
        or count_costly_rules(gang, needed) > RULES
        or len(kinds) > EXACT
        or any(role.free for role in gang.roles)
    )
    if admitted and possible is False:
        found.append("admitted, though the minimum fits nowhere")
    if outcome.minimum.verdict is Verdict.INFEASIBLE and possible:
        found.append("refused, though the minimum fits")
    if outcome.minimum.verdict is Verdict.UNKNOWN and not open_:
        found.append("unknown, though it could be known")
    return Verdicts(outcome.minimum.verdict, possible, tuple(found), open_)


def tally(found: Mapping[int, Verdicts]) -> Counter[str]:
    """How many of each verdict."""
    return Counter(str(one.planner.value if one.planner else "waits") for one in found.values())
