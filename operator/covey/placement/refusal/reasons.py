"""Reasons why a minimum fits nowhere, in terms a person can act on, and the proof of it.

Everything is read off the tables that refused the gang: for each role how many of its replicas fit alone, how many
next to the other minimums, and where the most; then, in the best domain, what is missing for the rest. Where sums
proved it, not tables: the roles that ask for too much together, and where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from covey.placement.choice.candidates import Growth, Solution, fill_key, fullest
from covey.placement.cluster import resources
from covey.placement.cluster.domains import DomainNode
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Exclusion, Gang, Path, Reason, Refusal, Shape, Verdict, natural, where
from covey.placement.question.demands import Demand, minimum_of
from covey.placement.question.readiness import tell_split_labels
from covey.placement.refusal.counts import TRIED, Best, Counts
from covey.placement.refusal.exclusions import exclusions
from covey.placement.refusal.misfits import find_misfit, find_too_wide
from covey.placement.refusal.shortage import Shortage
from covey.placement.sharing.layout import Item


def explain(gang: Gang, inventory: Inventory, solution: Solution, needed: Sequence[Demand]) -> Refusal:
    """Explain why a gang's minimum fits nowhere; one reason for each role that is to blame."""
    sentences = _Sentences(Counts(gang, inventory, solution, needed))
    return tell_split_labels(Refusal(Verdict.INFEASIBLE, sentences.reasons_or_fallback()), gang, inventory)


class _Sentences:
    """The reasons of one refused gang, in words."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def reasons_or_fallback(self) -> tuple[Reason, ...]:
        """One reason for each role to blame; never none."""
        return tuple(self.reasons()) or (self._plainly(),)

    def reasons(self) -> Iterable[Reason]:
        """One reason for each role to blame."""
        if not self._counts.tables:
            yield from self._stuck()
            return
        alone = {i: self._counts.best(i, (0,) * len(self._counts.open)) for i in self._counts.roles}
        unfit = [i for i in self._counts.roles if alone[i].count < len(self._counts.open[i])]
        if unfit:
            for i in unfit:
                yield self._alone(i, alone[i])
        else:
            yield from self._jointly()

    def _alone(self, role: int, best: Best) -> Reason:
        """Report a role that does not fit, whatever the others do."""
        depth = self._counts.depth(role)
        if best.count == 0 and depth > self._counts.solution.problem.structure.scope:
            return self._no_replica(role, depth)
        nothing = (0,) * len(self._counts.open)
        lack = self._counts.lack(role, best.scope, (*nothing[:role], best.count, *nothing[role + 1 :]))
        fix = lack.fix(whole=self._counts.settles(role, best.scope, lack))
        satisfied = self._counts.count_satisfied(role, best.count)
        return self._reason(
            role, "unit", self._scope_level(), best.scope.path, satisfied, lack, self._describe_count(role, best, fix)
        )

    def _no_replica(self, role: int, depth: int) -> Reason:
        """Report a role of which no replica fits into any domain of its level."""
        demand = self._counts.open[role][0]
        ranked = self._counts.rank_domains(demand, depth, [scope for scope, _ in self._counts.tables])
        level = self._counts.solution.engine.tree.topology.levels[depth].name
        size = len(demand.missing)
        name = self._counts.gang.roles[role].name
        if not ranked:
            message = f"{name}: no {level} can be used at all"
            lack = Shortage(None, 0, 0, size)
            return self._reason(role, "replica", level, (), self._counts.count_satisfied(role, 0), lack, message)
        shapes = [pod.shape for pod in demand.missing]
        tried = [(self._counts.bench(d, {}).lack(shapes), fits, d) for fits, d in ranked[:TRIED]]
        lack, fits, domain = min(tried, key=lambda t: (t[0].size, -t[1]))
        scope = next(d for d in domain.ancestors() if d.depth == self._counts.solution.problem.structure.scope)
        fix = lack.fix(whole=lack.sure and self._counts.settles(role, scope, lack, domain), one=True)
        message = (
            f"{name}: no {level} has capacity for a replica of {size} pod{'s' * (size > 1)}"
            f"{'' if lack.apart else self._asking(shapes)}; the best, {where(domain.path)}, has capacity for {fits}{fix}"
        )
        return self._reason(role, "replica", level, domain.path, self._counts.count_satisfied(role, 0), lack, message)

    def _jointly(self) -> Iterable[Reason]:
        """Report that each role fits alone, but not all of them together."""
        growths = [Growth(kinds, 0, len(kinds)) for kinds in self._counts.kinds]
        zero = (0,) * self._counts.classes
        scored = []
        for scope, table in self._counts.tables:
            counts = fullest(table, self._counts.solution.order, zero, growths)
            if counts is not None:
                scored.append((fill_key(counts, growths), counts, scope, table))
        _, counts, scope, table = max(scored, key=lambda s: s[:2])
        full = tuple(map(len, self._counts.open))
        beside = {i: self._counts.most(table, i, full) for i in self._counts.roles}
        placed = {i: counts[i] if beside[i] < 0 else beside[i] for i in self._counts.roles}
        short = [i for i in self._counts.roles if placed[i] < len(self._counts.open[i])]
        short = [
            i for i in short if self._counts.count_satisfied(i, placed[i]) < self._counts.gang.roles[i].minimum
        ] or short[:1]
        names = join_names([self._counts.gang.roles[i].name for i in self._counts.roles])
        message = ""
        for i in short:
            rest = counts if beside[i] < 0 else (*full[:i], beside[i], *full[i + 1 :])
            lack = self._counts.lack(i, scope, rest)
            others = join_names([self._counts.gang.roles[j].name for j in self._counts.roles if j != i])
            fix = lack.fix(whole=self._counts.settles(i, scope, lack))
            message = message or (  # one sentence for all: the mirrored ones would add nothing
                f"{names} each fit alone but not together in {self._scope_name(scope)}: beside {others} there is capacity for "
                f"{self._counts.done(i) + placed[i]} of {self._counts.total(i)} replicas of {self._counts.gang.roles[i].name}{fix}"
                f"{self._out(self._exclusions(i))}{self._out_for_some(i)}"
            )
            satisfied = self._counts.count_satisfied(i, placed[i])
            yield self._reason(i, "unit", self._scope_level(), scope.path, satisfied, lack, message, told=True)

    def _stuck(self) -> Iterable[Reason]:
        """Report half placed replicas without room in their own domain, or with a domain outside every candidate."""
        problem = self._counts.solution.problem
        alone = len(self._counts.needed) == 1
        for path, items in sorted(problem.fixed.items(), key=lambda pair: [natural(value) for value in pair[0]]):
            lacks = [(item, self._counts.bench_at(path).lack(self._counts.shapes(item))) for item in items]
            unfit = [(item, lack) for item, lack in lacks if lack.size > (0, 0)]
            for item, lack in unfit:
                count = len(self._counts.shapes(item))
                message = (
                    f"{self._counts.gang.roles[item.role].name}: {count} missing pod{'s' * (count > 1)} of replica "
                    f"{item.replica} must join the others in {self._place(path)}, which has no capacity"
                    f"{lack.fix(whole=alone and self._counts.is_only_room(), one=True)}"
                )
                yield self._reason(
                    item.role, "replica", self._level(path), path, self._counts.whole(item.role), lack, message
                )
            if not unfit and len(items) > 1:
                yield from self._crowded_reasons(path, items)

    def _crowded_reasons(self, path: Path, items: Sequence[Item]) -> Iterable[Reason]:
        """Report half placed replicas that each would fit into their domain, but not all of them."""
        lack = self._counts.bench_at(path).lack([shape for item in items for shape in self._counts.shapes(item)])
        if lack.size > (0, 0):
            replicas = join_names([f"{self._counts.gang.roles[item.role].name} {item.replica}" for item in items])
            message = (
                f"the missing pods of the replicas {replicas} must all join the others in {self._place(path)}, "
                f"which has no capacity for all of them{lack.fix(whole=False, one=True)}"
            )
            role = items[0].role
            yield self._reason(role, "unit", self._level(path), path, self._counts.whole(role), lack, message)

    def _plainly(self) -> Reason:
        """Return the reason that remains when nothing can be counted."""
        broad = self._scope_level()
        message = f"no {broad or 'node'} can take the rest: placed pods or required levels exclude every one"
        role = self._counts.needed[0].role
        return self._reason(role, "unit", broad, (), self._counts.whole(role), Shortage(None, 0, 0, 0), message)

    def _level(self, path: Path) -> str:
        return self._counts.solution.engine.tree.topology.levels[len(path) - 1].name

    def _place(self, path: Path) -> str:
        return f"{self._level(path)} {where(path)}"

    def _scope_level(self) -> str | None:
        scope = self._counts.solution.problem.structure.scope
        return self._counts.solution.engine.tree.topology.levels[scope].name if scope >= 0 else None

    def _scope_name(self, scope: DomainNode) -> str:
        return f"{self._scope_level()} {where(scope.path)}" if scope.path else "the cluster"

    def _describe_count(self, role: int, best: Best, fix: str) -> str:
        name = self._counts.gang.roles[role].name
        done = self._counts.done(role) + best.count
        return (
            f"{name}: capacity for {done} of {self._counts.total(role)} replicas in {self._scope_name(best.scope)}, "
            f"{'the best' if best.scope.path else 'all of it'}{fix}"
        )

    def _asking(self, shapes: Sequence[Shape]) -> str:
        """Describe what each pod asks of the first resource, when all ask the same."""
        first = {min(shape.requests, key=lambda r: resources.rank(r[0])) for shape in shapes}
        name, value = first.pop()
        if first or name == resources.PODS:
            return ""
        return f" with {resources.text(name, value)} {name} each"

    def _reason(
        self,
        role: int,
        scope: str,
        level: str | None,
        path: Path,
        satisfied: int,
        lack: Shortage,
        message: str,
        *,
        told: bool = False,
    ) -> Reason:
        """Make a reason. ``told``: the message is complete as it is."""
        request = self._counts.gang.roles[role]
        excluded = self._exclusions(role)
        if (hopeless := self._hopeless(role)) is not None:
            message, told = hopeless, False
        if not told:
            message += self._out(excluded) + self._out_for_some(role)
        if not request.minimum:  # it is not missed for itself, but for the replica that it comes with
            blamed = self._counts.bringer(role)
            message = f"{self._counts.gang.roles[blamed].name} comes together with {request.name}; {message}"
            request, satisfied = self._counts.gang.roles[blamed], self._counts.whole(blamed)
        resource = lack.resource
        return Reason(
            role=request.name,
            scope=scope,
            level=level,
            best_domain=path,
            required=request.minimum,
            satisfied=satisfied,
            resource=resource,
            requested=None if resource is None else resources.text(resource, lack.requested),
            short=None if resource is None else resources.text(resource, lack.short),
            excluded=excluded,
            message=message,
        )

    def _hopeless(self, role: int) -> str | None:
        """Say what no node could give the role, or hosts its replicas or the unit; None where that is not the cause."""
        gang, request = self._counts.gang, self._counts.gang.roles[role]
        missing = [demand for demand in self._counts.needed if demand.role == role]
        shapes = [pod.shape for demand in missing for pod in demand.missing]
        misfit = find_misfit(self._counts.inventory, shapes)
        if misfit is not None:
            return f"{request.name}: {misfit}"
        levels = self._counts.solution.engine.tree.topology.levels
        depth = self._counts.depth(role) if self._counts.open[role] else -1
        if missing and 0 <= depth < len(levels):
            replica = [pod.shape for pod in missing[0].missing]
            wide = find_too_wide(self._counts.inventory, replica, levels[depth])
            if wide is not None:
                return f"{request.name}: a replica asks for {wide}"
        scope = self._counts.solution.problem.structure.scope
        if scope < 0 or not request.follow_unit:
            return None
        unit = [demand for demand in self._counts.needed if gang.roles[demand.role].follow_unit]
        wide = find_too_wide(self._counts.inventory, [pod.shape for d in unit for pod in d.missing], levels[scope])
        names = join_names([gang.roles[number].name for number in sorted({demand.role for demand in unit})])
        return f"{names}: the minimum of the unit asks for {wide}" if wide is not None else None

    def _out(self, excluded: Sequence[Exclusion]) -> str:
        """Describe how many nodes are out, as the end of a sentence."""
        if not excluded:
            return ""
        nodes = sum(e.nodes for e in excluded)
        causes = join_names([f"{e.nodes} {e.cause}" for e in excluded[:3]])
        return f"; {nodes} node{'s are' if nodes > 1 else ' is'} out: {causes}"

    def _out_for_some(self, role: int) -> str:
        """Describe how many nodes more are out for single pods of a replica, such as its leader, that others may use."""
        request = self._counts.gang.roles[role]
        indices: dict[Shape, int] = {}
        for pod in (pod for replica in request.replicas for pod in replica.pods if pod.node is None):
            indices.setdefault(pod.shape, pod.index)
        if len(indices) < 2 or len(set(indices.values())) < len(indices):  # not alike in each replica: too much to say
            return ""
        for_all = {exclusion.cause: exclusion.nodes for exclusion in self._exclusions(role)}
        text = ""
        for shape, index in indices.items():
            own = self._exclusions(role, [shape])
            more = [(exclusion.cause, exclusion.nodes - for_all.get(exclusion.cause, 0)) for exclusion in own]
            causes = join_names([f"{nodes} {cause}" for cause, nodes in more[:3] if nodes > 0])
            nodes = sum(nodes for _, nodes in more if nodes > 0)
            if nodes:
                text += f"; for pod {index} of a replica {nodes} more {'are' if nodes > 1 else 'is'} out: {causes}"
        return text

    def _exclusions(self, role: int, of: Sequence[Shape] | None = None) -> tuple[Exclusion, ...]:
        """The nodes that none of a role's pods, or of those of some shapes, may use."""
        gang, request = self._counts.gang, self._counts.gang.roles[role]
        levels = [level for level in ((gang.required if request.follow_unit else None), request.required) if level]
        shapes = [pod.shape for replica in request.replicas for pod in replica.pods if pod.node is None]
        return exclusions(gang, self._counts.inventory, of or shapes, levels)


def join_names(names: Sequence[str]) -> str:
    """Join names as people write them one after another."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "the rest"


def asked_for(demands: Sequence[Demand]) -> Mapping[str, int]:
    """All that the missing pods of these demands ask for."""
    total: Counter[str] = Counter()
    counts: Counter[int] = Counter()
    shapes: dict[int, Shape] = {}
    for demand in demands:
        for pod in demand.missing:
            counts[id(pod.shape)] += 1
            shapes[id(pod.shape)] = pod.shape
    for number, count in counts.items():
        for name, value in shapes[number].requests:
            total[name] += count * value
    return total


def overdrawn(scope: DomainNode, asked: Mapping[str, int]) -> str | None:
    """The resource of which a domain lacks most for what is asked, as a share of it; None when none is short."""
    short = {name: value - scope.free.get(name, 0) for name, value in asked.items() if value > scope.free.get(name, 0)}
    return min(short, key=lambda name: (-short[name] / asked[name], resources.rank(name)), default=None)


def refuse_crowded(
    gang: Gang,
    inventory: Inventory,
    scope: DomainNode,
    demands: Sequence[Demand],
    room: Callable[[int], int],
) -> Refusal:
    """The refusal of demands that do not fit together into any candidate.

    Args:
        gang: who asks.
        inventory: for the nodes that are out.
        scope: the best candidate.
        demands: what does not fit.
        room: an upper bound on the replicas of a role that fit there next to the others.
    """
    roles = sorted({demand.role for demand in demands})
    names = join_names([gang.roles[role].name for role in roles])
    place = f"{gang.required} {where(scope.path)}" if scope.path else "the cluster"
    asked = asked_for(demands)
    resource = overdrawn(scope, asked)
    last, most = min(((role, room(role)) for role in roles), key=lambda pair: (pair[1], -pair[0]))
    request = gang.roles[last]
    open_ones = [demand for demand in demands if demand.role == last]
    numbers = minimum_of(request)
    done = len(numbers) - sum(demand.replica.replica in numbers for demand in open_ones)
    if resource is not None:
        have = max(scope.free.get(resource, 0), 0)
        message = (
            f"{names} ask{'s' * (len(roles) == 1)} for {resources.text(resource, asked[resource])} {resource} in all, and "
            f"{place}{', the best,' if scope.path else ''} has {resources.text(resource, have)} free"
        )
    else:
        others = join_names([gang.roles[role].name for role in roles if role != last])
        message = (
            f"{names} do not fit together in {place}: beside {others} there is capacity for at most "
            f"{done + most} of {done + len(open_ones)} replicas of {request.name}"
        )
    for role in roles:
        own = (pod.shape for demand in demands if demand.role == role for pod in demand.missing)
        if (misfit := find_misfit(inventory, own)) is not None:
            message = f"{gang.roles[role].name}: {misfit}"
            break
    shapes = [pod.shape for demand in open_ones for pod in demand.missing]
    levels = [level for level in ((gang.required if request.follow_unit else None), request.required) if level]
    reason = Reason(
        role=request.name,
        scope="unit",
        level=gang.required if scope.path else None,
        best_domain=scope.path,
        required=request.minimum,
        satisfied=min(done + most, max(request.minimum - 1, 0)),
        resource=resource,
        requested=None if resource is None else resources.text(resource, asked[resource]),
        short=None
        if resource is None
        else resources.text(resource, asked[resource] - max(scope.free.get(resource, 0), 0)),
        excluded=exclusions(gang, inventory, shapes, levels),
        message=message,
    )
    return Refusal(Verdict.INFEASIBLE, (reason,))
