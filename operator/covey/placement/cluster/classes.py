"""Resources that stand for devices: which can be counted, by which condition, and which a claim takes of. Pure.

A resource is a number only where devices are interchangeable. Resources in play are those that a DeviceClass stands
behind by its ``extendedResourceName``, and what claims of pods ask for: a class, or what selectors leave of it. Classes
behind two extended resources must share no device at all, and what is asked for is a part of the devices of such a class
on every node where it has some of them, or is refused by name.

Of two things that pods ask for neither refuses the other: kube-scheduler takes the first device that fits, so the worst
is taken for true. A part takes of all that it is a part of; where two overlap and neither is a part of the other, both
take of a third amount, which on nodes where they meet is the larger of the two (`DeviceClasses.shared`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import permutations, product
from typing import Final, NamedTuple

from covey.api import core
from covey.placement.cluster.device_claims import DeviceAsk, missing_class
from covey.placement.cluster.selectors import DeviceCondition, in_turn, parse_selector

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
#: Requests with different selectors that are in play at a time, in all and of one namespace: each is judged for each device.
MOST_SELECTED: Final = 32
MOST_OF_NAMESPACE: Final = 8
_TOO_MANY: Final = f"is one too many: {MOST_SELECTED} requests with unlike selectors are counted at a time, {MOST_OF_NAMESPACE} of a namespace; ask as others do"
_UNKNOWN: Final = "whose selectors Covey cannot judge: it knows ==, in, compareTo and && on a device's driver, attributes and capacity"
_FAILING: Final = (
    "whose selectors ask devices of several nodes for what these lack, at which kube-scheduler gives up every node:"
    ' begin them with device.driver == "…" &&'
)
_SPECIAL: Final = (
    "whose devices are of several nodes, share counters or are shared themselves, which Covey cannot count"
)


class Traits(NamedTuple):
    """The conditions that a device meets, those that fail on it, whether it is of one node, and is countable."""

    matched: frozenset[str]
    failing: frozenset[str]
    local: bool
    plain: bool


Mix = frozenset[Traits]


class DeviceClasses:
    """DeviceClasses, and what claims ask for, as every device was last judged by; what has come since is noted."""

    def __init__(self) -> None:
        self._noted: dict[str, core.DeviceClass] = {}
        #: By UID of the pod: when it was created, and its namespace; and whether this gives way to what others ask for.
        self._askers: dict[DeviceAsk, dict[str, tuple[str, str]]] = {}
        self._asked_by: dict[str, dict[DeviceAsk, bool]] = {}
        #: For how many pods it does not.
        self._waiting = Counter[DeviceAsk]()
        self._asks: tuple[DeviceAsk, ...] = ()
        self._left: frozenset[DeviceAsk] = frozenset()
        self._names: dict[DeviceAsk, tuple[str, ...]] = {}
        self._settled: frozenset[Mix] | None = None
        self.known: Mapping[str, core.DeviceClass] = {}
        #: By class, or by what is asked for of it.
        self.conditions: Mapping[str, DeviceCondition] = {}
        #: Resource → its condition, and why a resource cannot be counted.
        self.served: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        #: Resource → two conditions that overlap: as many devices as more of a node meet, where some meet both, else those of both.
        self.shared: dict[str, tuple[str, str]] = {}
        #: What claims ask for that was judged and cannot be counted, and why.
        self.refused: dict[DeviceAsk, str] = {}

    def note(self, class_: core.DeviceClass) -> bool:
        """Take a class down; tells whether devices have to be judged anew."""
        before = self._noted.get(class_.metadata.name)
        self._noted[class_.metadata.name] = class_
        return before is None or (before.spec, _birth(before)) != (class_.spec, _birth(class_))

    def drop(self, name: str) -> bool:
        """Forget a class; tells whether devices have to be judged anew."""
        return self._noted.pop(name, None) is not None

    def ask(self, pod: core.Pod, asks: Collection[DeviceAsk], yielding: Collection[DeviceAsk] = ()) -> bool:
        """Note what the claims of a pod ask for; tells whether devices have to be judged anew.

        Args:
            pod: the pod.
            asks: what they ask for.
            yielding: what of it must refuse nobody: the pod has it already, or is of no gang.
        """
        uid, meta = pod.metadata.uid, pod.metadata
        before, now = self._asked_by.pop(uid, {}), {ask: ask in yielding for ask in asks}
        new = [ask for ask in before.keys() | now.keys() if before.get(ask) != now.get(ask)]
        states = [(ask in self._askers, self._waiting[ask] > 0) for ask in new]
        for ask in new:
            self._askers.setdefault(ask, {}).pop(uid, None)
            self._waiting[ask] += (now.get(ask) is False) - (before.get(ask) is False)
            if ask in now:
                self._askers[ask][uid] = (meta.creation_timestamp, meta.namespace)
            if not self._askers[ask]:
                del self._askers[ask], self._waiting[ask]
        if now:
            self._asked_by[uid] = now
        changed = [(ask in self._askers, self._waiting[ask] > 0) for ask in new]
        if len(self._askers) > 1:
            return states != changed
        return [known for known, _ in states] != [known for known, _ in changed]

    def has_judged(self, ask: DeviceAsk) -> bool:
        """Tell whether devices were judged since somebody has asked for these."""
        return ask in self._asks or ask in self._left

    def refusal(self, ask: DeviceAsk) -> str | None:
        """Return why devices that are asked for cannot be counted."""
        if ask not in self._left:
            return self.refused.get(ask)
        if ask.device_class in self.known:
            return f"{ask.resource} {_TOO_MANY}"
        return missing_class(ask)

    def judges_like(self, other: DeviceClasses) -> bool:
        """Tell whether every device has the same traits by both."""
        return self.conditions == other.conditions

    def names_of(self, ask: DeviceAsk) -> tuple[str, ...]:
        """The resources of which each device that is asked for takes one."""
        return self._names.get(ask, (ask.resource,))

    def follow(self) -> DeviceClasses:
        """Make a copy as of now, for devices to be judged by."""
        made = DeviceClasses()
        made.known = dict(self._noted)
        made._asks = self._choose()
        made._left = frozenset(self._askers).difference(made._asks)
        # What was judged by stays the same condition: only by others are devices judged again.
        same = {
            name
            for name, device_class in made.known.items()
            if name in self.known and self.known[name].spec == device_class.spec
        }
        stays = {name: condition for name, condition in self.conditions.items() if name in same}
        conditions = {name: stays.get(name) or _condition(device_class) for name, device_class in made.known.items()}
        for ask in made._asks:
            if ask.selectors and (base := conditions.get(ask.device_class)):
                before = self.conditions.get(ask.key) if ask.device_class in same else None
                conditions[ask.key] = before or in_turn([base, *map(parse_selector, ask.selectors)])
        made.conditions = {name: condition for name, condition in conditions.items() if condition}
        return made

    def catch_up(self, before: DeviceClasses) -> DeviceClasses:
        """Take over what was noted meanwhile."""
        self._noted, self._askers, self._asked_by = before._noted, before._askers, before._asked_by
        self._waiting = before._waiting
        return self

    def settle(self, mixes: Collection[Mix]) -> bool:
        """Find out which resources can be counted, of nodes with such devices; tells whether that has changed."""
        now = frozenset(mixes)
        if now == self._settled:
            return False
        self._settled = now
        before = (self.served, self.problems, self.shared, self._names, self.refused)
        kinds = frozenset[Traits]().union(*now)
        explicit: dict[str, core.DeviceClass] = {}
        for device_class in sorted(
            self.known.values(), key=lambda device_class: device_class.metadata.name, reverse=True
        ):
            wanted = device_class.spec.extended_resource_name
            if wanted and (wanted not in explicit or _birth(device_class) >= _birth(explicit[wanted])):
                explicit[wanted] = device_class
        named = {device_class.metadata.name: resource for resource, device_class in explicit.items()}
        self.served, self.problems = {}, {}
        for name in self.known:
            implicit = f"{IMPLICIT}{name}"
            resource = named.get(name, implicit)
            if resource != implicit:
                self.problems[implicit] = f"{implicit} is the same as {resource}: ask for that"
            problem = self._problem_of(name, kinds) or _problem_of_sharing(name, named, kinds)
            if problem is None:
                self.served[resource] = name
            else:
                self.problems[resource] = f"{resource} is of DeviceClass {name}, {problem}"
        self._settle_asks(named, _Overlaps(now), kinds)
        return before != (self.served, self.problems, self.shared, self._names, self.refused)

    def _settle_asks(self, named: Mapping[str, str], overlaps: _Overlaps, kinds: Mix) -> None:
        """Find out which of what claims ask for can be counted, and by which resources."""
        self._names, self.refused, self.shared = {}, {}, {}
        taken: list[DeviceAsk] = []
        for ask in self._asks:
            problem = self._problem_of(ask.device_class, kinds) or self._problem_of(ask.key, kinds)
            if problem is None:
                wider = (named[name] for name in named if overlaps.clash(ask.key, name))
                if what := next(wider, None):
                    problem = (
                        f"which has some devices of a node in common with {what}, and not all: Covey cannot count both"
                    )
            if problem is None:
                taken.append(ask)
            else:
                self.refused[ask] = f"{ask.resource} is of DeviceClass {ask.device_class}, {problem}"
        for place, ask in enumerate(taken):
            mine = overlaps.of(ask.key)
            above = [named[name] for name in named if name == ask.device_class or mine & overlaps.of(name)]
            for number, other in enumerate(taken):
                theirs = overlaps.of(other.key)
                if mine and (mine < theirs or (mine == theirs and number < place)):
                    above.append(other.resource)
                elif mine & theirs and not (mine <= theirs or theirs <= mine):
                    one, two = sorted((ask, other))
                    above.append(shared := f"{one.resource} | {two.resource}")
                    self.shared[shared] = (one.key, two.key)
            base, implicit = DeviceAsk(ask.device_class), f"{IMPLICIT}{ask.device_class}"
            above += [implicit] if implicit in self.served else []
            self._names[ask] = tuple(dict.fromkeys((ask.resource, base.resource, *above)))
            self.served |= {ask.resource: ask.key, base.resource: base.key}

    def _choose(self) -> tuple[DeviceAsk, ...]:
        """Choose the asks that can be judged: tenants may write any number of others.

        Namespaces take turns, each with what it asked for first. What gives way comes after all else.
        """
        since = {ask: min(of.values()) for ask, of in self._askers.items() if ask.device_class in self._noted}
        turn = Counter[str]()
        places: dict[DeviceAsk, int] = {}
        for ask in sorted(since, key=lambda ask: (not self._waiting[ask], since[ask], ask)):
            places[ask] = turn[since[ask][1]]
            turn[since[ask][1]] += bool(ask.selectors)
        order = sorted(places, key=lambda ask: (not self._waiting[ask], places[ask], since[ask], ask))
        selected = [ask for ask in order if ask.selectors and places[ask] < MOST_OF_NAMESPACE][:MOST_SELECTED]
        return tuple(ask for ask in order if not ask.selectors or ask in selected)

    def _problem_of(self, name: str, kinds: Iterable[Traits]) -> str | None:
        """The reason for which devices that meet a condition cannot be counted."""
        if name not in self.conditions:
            return _UNKNOWN
        mine = [kind for kind in kinds if name in kind.matched]
        if mine and not any(kind.plain for kind in mine):
            return _SPECIAL
        if any(name in kind.failing and not kind.local for kind in kinds):
            return _FAILING
        return None


def _problem_of_sharing(name: str, named: Collection[str], kinds: Iterable[Traits]) -> str | None:
    """The class that shares devices with another one, as a reason."""
    # The name that every class has counts only where somebody asks for it, so it is in nobody's way but its own.
    others = {other for kind in kinds if name in kind.matched for other in kind.matched if "/" not in other}
    others = {other for other in others - {name} if other in named or name not in named}
    if not others:
        return None
    return f"which has devices that are of DeviceClass {min(others)} too: Covey cannot count them twice"


class _Overlaps:
    """Conditions that the same devices of some node meet: which of them cannot be counted by both.

    Args:
        mixes: traits of the devices of each node.
    """

    def __init__(self, mixes: Iterable[Mix]) -> None:
        self._torn: set[tuple[str, str]] = set()
        self._kinds: dict[str, set[Traits]] = {}
        for mix in mixes:
            names: dict[Mix, list[str]] = {}
            for name in frozenset[str]().union(*(kind.matched for kind in mix)):
                mine = frozenset(kind for kind in mix if name in kind.matched)
                names.setdefault(mine, []).append(name)
                self._kinds.setdefault(name, set()).update(mine)
            for one, other in permutations(names, 2):
                if one & other:
                    self._torn.update(product(names[one], names[other]))

    def of(self, name: str) -> AbstractSet[Traits]:
        """The traits of devices that meet a condition."""
        return self._kinds.get(name, frozenset())

    def clash(self, part: str, whole: str) -> bool:
        """Tell whether on some node one condition has a part of the devices of another, or elsewhere others as well."""
        mine, theirs = self.of(part), self.of(whole)
        return (part, whole) in self._torn or not (mine <= theirs or mine.isdisjoint(theirs))


def traits_of(
    spec: core.ResourceSliceSpec,
    device: core.Device,
    known: Traits | None,
    conditions: Mapping[str, DeviceCondition],
    kept: AbstractSet[str] = frozenset(),
) -> Traits:
    """Judge a device of a slice by conditions, with what is ``known`` of it by those that are ``kept``."""
    answers = {name: condition(spec.driver, device) for name, condition in conditions.items()}
    matched = frozenset(name for name, answer in answers.items() if answer)
    failing = frozenset(name for name, answer in answers.items() if answer is None)
    if known is not None:
        return _intern(known._replace(matched=matched | known.matched & kept, failing=failing | known.failing & kept))
    special = (
        device.consumes_counters,
        device.allow_multiple_allocations,
        device.binding_conditions,
        device.node_allocatable_resources,
    )
    local = bool(spec.node_name)
    return _intern(Traits(matched, failing, local, local and not any(special)))


@lru_cache(maxsize=1024)
def _intern(traits: Traits) -> Traits:
    return traits


def _condition(class_: core.DeviceClass) -> DeviceCondition | None:
    """The selectors of a class, one after the other; None if one of them is not known."""
    expressions = ((selector.get("cel") or {}).get("expression", "") for selector in class_.spec.selectors or ())
    try:
        return in_turn([parse_selector(expression) for expression in expressions])
    except (ValueError, RecursionError):  # a number of thousands of digits, parentheses a thousand deep
        return None


def _birth(class_: core.DeviceClass) -> str:
    """RFC 3339 in UTC sorts as text."""
    return class_.metadata.creation_timestamp
