"""Devices of drivers as amounts of extended resources, node by node (KEP-5004). Pure.

Where a node offers none of an extended resource itself, kube-scheduler makes a claim for the pod's devices instead, of
the DeviceClass that stands behind the resource: by ``extendedResourceName``, else by the name that every class has,
``deviceclass.resource.kubernetes.io/<class>``. What such a node offers is what the allocator would still give:

* devices of pools of which every slice of the newest generation is there, and no name twice;
* that match the class (``selectors``) and have no taint, by themselves or by a DeviceTaintRule;
* that no claim has.

It is a number only where devices are interchangeable. So a resource is refused by name, and counts nothing, if its
class has other selectors, or shares devices with the class of another resource. Devices of more than one node, and those
that share counters, may be allocated several times or need a step of their own before they are bound, count nothing.

A pod that holds room is counted by its requests. The claim that kube-scheduler makes for it takes the same devices; so
once that is allocated, its devices are no capacity any more, and the pod's requests are added to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from msgspec.structs import replace

from covey.api import core
from covey.placement.cluster.resources import amount
from covey.placement.cluster.selectors import Condition, all_of, parse_selector

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
#: Marks the claim that kube-scheduler makes for a pod's extended resources.
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
_HARD: Final = ("NoSchedule", "NoExecute")
_UNKNOWN: Final = "whose selectors Covey cannot judge: it knows ==, in, compareTo and && on a device's driver, attributes and capacity"
_FAILING: Final = (
    "whose selectors ask devices of several nodes for what these lack, at which kube-scheduler gives up every node:"
    ' begin them with device.driver == "…" &&'
)
_SPECIAL: Final = (
    "whose devices are of several nodes, share counters or are shared themselves, which Covey cannot count"
)

#: Driver and pool; with the name of a device it is a device.
PoolId = tuple[str, str]
DeviceId = tuple[str, str, str]
#: Name and amount of what a pod requests.
Requests = Iterable[tuple[str, int]]


class _Traits(NamedTuple):
    """The classes that a device matches, those whose selectors fail on it, whether it is of one node, and is countable."""

    matched: frozenset[str]
    failing: frozenset[str]
    local: bool
    plain: bool


class DeviceCounts:
    """Slices, classes, claims and taint rules, and what follows from them. Each setter returns the nodes to be looked at again."""

    def __init__(self) -> None:
        self._slices: dict[str, core.ResourceSlice] = {}
        self._traits: dict[str, tuple[_Traits, ...]] = {}
        #: How many devices have which traits.
        self._kinds: Counter[_Traits] = Counter()
        #: Names of the slices of a pool, and the pools of a node.
        self._pools: dict[PoolId, set[str]] = {}
        self._pools_of: dict[str, Counter[PoolId]] = {}
        #: The classes as they are, and as every device was last judged by.
        self._noted: dict[str, core.DeviceClass] = {}
        self._classes: dict[str, core.DeviceClass] = {}
        self._conditions: dict[str, Condition] = {}
        self._rules: dict[str, core.TaintedDevices] = {}
        #: What each claim has, and the UID of the pod for whose extended resources it was made.
        self._claims: dict[tuple[str, str], tuple[tuple[DeviceId, ...], str | None]] = {}
        self._allocated: Counter[DeviceId] = Counter()
        #: UID of a pod → the allocated claims that say they are for its extended resources. Anybody may write that on his.
        self._special: dict[str, set[tuple[str, str]]] = {}
        self._offered: dict[str, frozenset[str]] = {}
        self._offering: Counter[str] = Counter()
        #: Resource → its class, and why a resource cannot be counted.
        self._served: dict[str, str] = {}
        self.problems: dict[str, str] = {}

    def set_slice(self, slice_: core.ResourceSlice) -> Collection[str]:
        """Take over a slice as it is now."""
        name, spec = slice_.metadata.name, slice_.spec
        touched = self._forget(name)
        pool = (spec.driver, spec.pool.name)
        self._slices[name] = slice_
        self._pools.setdefault(pool, set()).add(name)
        if spec.node_name:
            self._pools_of.setdefault(spec.node_name, Counter())[pool] += 1
        self._traits[name] = _traits_in(slice_, self._conditions)
        self._kinds.update(self._traits[name])
        return touched | self._nodes_of(pool) | self._settle()

    def remove_slice(self, name: str) -> Collection[str]:
        """Forget a slice."""
        return self._forget(name) | self._settle()

    @property
    def nodes(self) -> Collection[str]:
        """The nodes that have slices."""
        return list(self._pools_of)

    def set_class(self, class_: core.DeviceClass) -> Collection[str]:
        """Take over a DeviceClass as it is now."""
        return self._judge_all() if self.note_class(class_) else ()

    def remove_class(self, name: str) -> Collection[str]:
        """Forget a DeviceClass."""
        return self._judge_all() if self.drop_class(name) else ()

    def note_class(self, class_: core.DeviceClass) -> bool:
        """Take a DeviceClass down for the next ``judge``; tells whether one is due."""
        before = self._noted.get(class_.metadata.name)
        self._noted[class_.metadata.name] = class_
        return before is None or (before.spec, _birth(before)) != (class_.spec, _birth(class_))

    def drop_class(self, name: str) -> bool:
        """Drop a DeviceClass from the next ``judge``; tells whether one is due."""
        return self._noted.pop(name, None) is not None

    def judge(self) -> Iterator[None]:
        """The classes have changed: judge every device anew, slice by slice. Until the end all stays as it was."""
        classes = dict(self._noted)
        conditions = {name: found for name, each in classes.items() if (found := _condition(each))}
        judged: dict[str, tuple[core.ResourceSlice, tuple[_Traits, ...]]] = {}
        while due := [each for name, each in self._slices.items() if name not in judged or judged[name][0] is not each]:
            for each in due:
                judged[each.metadata.name] = (each, _traits_in(each, conditions))
                yield
        self._classes, self._conditions = classes, conditions
        self._traits = {name: judged[name][1] for name in self._slices}
        self._kinds = Counter(chain.from_iterable(self._traits.values()))
        self._settle()

    def set_rule(self, rule: core.DeviceTaintRule) -> Collection[str]:
        """Take over a DeviceTaintRule as it is now."""
        spec, name = rule.spec, rule.metadata.name
        before = self._rules.pop(name, None)
        if spec.device_selector is not None and spec.taint.effect in _HARD:
            self._rules[name] = spec.device_selector
        # Its status changes with every pod that it evicts.
        return () if self._rules.get(name) == before else list(self._pools_of)

    def remove_rule(self, name: str) -> Collection[str]:
        """Forget a DeviceTaintRule."""
        return list(self._pools_of) if self._rules.pop(name, None) else ()

    def set_claim(self, claim: core.ResourceClaim, pod: str | None = None) -> Collection[str]:
        """Take over a claim as it is now; ``pod`` (UID) has it in its status, whatever the claim says."""
        key, now = claim.metadata.key, (_devices_of(claim), pod or _pod_of(claim))
        if self._claims.get(key) == now:
            return ()
        touched = self.remove_claim(key)
        self._claims[key] = devices, pod = now
        self._allocated.update(devices)
        if devices and pod:
            self._special.setdefault(pod, set()).add(key)
        return touched | self._nodes_with(devices)

    def remove_claim(self, key: tuple[str, str]) -> set[str]:
        """Forget a claim."""
        devices, pod = self._claims.pop(key, ((), None))
        for device in devices:
            self._allocated[device] -= 1
            if not self._allocated[device]:
                del self._allocated[device]
        if pod and key in self._special.get(pod, ()):
            self._special[pod].discard(key)
            if not self._special[pod]:
                del self._special[pod]
        return self._nodes_with(devices)

    def has_claim(self, pod: str) -> bool:
        """Tell whether devices are allocated for the extended resources of a pod (by UID)."""
        return pod in self._special

    def knows_claim(self, namespace: str, name: str) -> bool:
        """Tell whether a claim exists."""
        return (namespace, name) in self._claims

    def set_node(self, node: core.Node) -> None:
        """Note the resources that a node offers by itself."""
        self._note_offers(node.metadata.name, _own_devices(node))

    def remove_node(self, name: str) -> None:
        """Forget what a node offers by itself."""
        self._note_offers(name, frozenset())

    def extend(self, node: core.Node, held: Iterable[tuple[str, Requests]] = ()) -> core.Node:
        """Return the node with its devices among what is allocatable.

        Args:
            node: as the API server has it.
            held: UIDs and requests of the pods that hold room there.
        """
        if not self._classes:
            return node
        found = self._free(node.metadata.name)
        for uid, requests in held:
            if uid in self._special:
                most = self._most_of(uid, node.metadata.name)
                found.update(
                    {each: min(n, most) for each, n in requests if each in self._served or each in self.problems}
                )
        offered = _own_devices(node)
        more = {each: n for each, n in found.items() if n and each not in offered}
        if not more:
            return node
        allocatable = {**(node.status.allocatable or {}), **more}
        return replace(node, status=replace(node.status, allocatable=allocatable))

    def _most_of(self, pod: str, node: str) -> int:
        """Count devices of the claims for a pod's extended resources; not those that are known to be of another node."""
        here, claims = self._pools_of.get(node, ()), self._special[pod]
        return sum(id_[:2] in here or id_[:2] not in self._pools for key in claims for id_ in self._claims[key][0])

    def is_served(self, resource: str) -> bool:
        """Tell whether some devices that are counted stand behind a resource."""
        name = self._served.get(resource)
        return name is not None and any(name in kind.matched and kind.plain for kind in self._kinds)

    def problem(self, resource: str) -> str | None:
        """Return why nothing can be planned that asks for a resource; None where nodes offer it themselves."""
        return None if self._offering[resource] else self.problems.get(resource)

    def _note_offers(self, node: str, offered: frozenset[str]) -> None:
        before = self._offered.pop(node, frozenset())
        if offered:
            self._offered[node] = offered
        self._offering += Counter(offered - before)
        self._offering -= Counter(before - offered)

    def _free(self, node: str) -> Counter[str]:
        """The devices of a node that may be allocated, by resource; none where selectors fail on one of them, usable or not."""
        found, failing = Counter[str](), set[str]()
        for pool in self._pools_of.get(node, ()):
            newest = self._newest(pool)
            for each in (self._slices[name] for name in self._pools[pool]):
                if each.spec.node_name != node:
                    continue
                for device, traits in zip(each.spec.devices or (), self._traits[each.metadata.name], strict=True):
                    failing |= traits.failing
                    if traits.plain and each in newest and self._is_available(pool, device):
                        found.update(traits.matched)
        return Counter({resource: found[name] for resource, name in self._served.items() if name not in failing})

    def _newest(self, pool: PoolId) -> list[core.ResourceSlice]:
        """The slices of the newest generation of a pool; none unless it is complete and valid."""
        slices = [self._slices[name] for name in self._pools[pool]]
        newest = max(each.spec.pool.generation for each in slices)
        found = [each for each in slices if each.spec.pool.generation == newest]
        if any(each.spec.pool.resource_slice_count != len(found) for each in found):
            return []
        names = [device.name for each in found for device in each.spec.devices or ()]
        return found if len(set(names)) == len(names) else []

    def _is_available(self, pool: PoolId, device: core.Device) -> bool:
        """No claim has it, and no taint is on it: nothing that a claim for extended resources says tolerates one."""
        wanted = (*pool, device.name)
        if self._allocated[wanted] or any(taint.effect in _HARD for taint in device.taints or ()):
            return False
        return not any(
            all(part in {None, own} for part, own in zip((rule.driver, rule.pool, rule.device), wanted, strict=True))
            for rule in self._rules.values()
        )

    def _forget(self, name: str) -> set[str]:
        """Drop a slice; returns the nodes of its pool."""
        before = self._slices.get(name)
        if before is None:
            return set()
        spec = before.spec
        pool = (spec.driver, spec.pool.name)
        touched = self._nodes_of(pool)
        del self._slices[name]
        self._kinds -= Counter(self._traits.pop(name))
        self._pools[pool].discard(name)
        if not self._pools[pool]:
            del self._pools[pool]
        if spec.node_name:
            self._pools_of[spec.node_name] -= Counter([pool])
            if not self._pools_of[spec.node_name]:
                del self._pools_of[spec.node_name]
        return touched

    def _judge_all(self) -> Collection[str]:
        deque(self.judge(), maxlen=0)
        return self.nodes

    def _settle(self) -> set[str]:
        """Find out which resources can be counted. Returns all nodes where that has changed."""
        before = (self._served, self.problems)
        explicit: dict[str, core.DeviceClass] = {}
        for each in sorted(self._classes.values(), key=lambda each: each.metadata.name, reverse=True):
            wanted = each.spec.extended_resource_name
            if wanted and (wanted not in explicit or _birth(each) >= _birth(explicit[wanted])):
                explicit[wanted] = each
        named = {each.metadata.name: resource for resource, each in explicit.items()}
        self._served, self.problems = {}, {}
        for name in self._classes:
            implicit = f"{IMPLICIT}{name}"
            resource = named.get(name, implicit)
            if resource != implicit:
                self.problems[implicit] = f"{implicit} is the same as {resource}: ask for that"
            problem = self._problem_of(name, named)
            if problem is None:
                self._served[resource] = name
            else:
                self.problems[resource] = f"{resource} is of DeviceClass {name}, {problem}"
        return set(self._pools_of) if before != (self._served, self.problems) else set()

    def _problem_of(self, name: str, named: Collection[str]) -> str | None:
        """The reason for which devices of a class cannot be counted."""
        if name not in self._conditions:
            return _UNKNOWN
        mine = [kind for kind in self._kinds if name in kind.matched]
        if mine and not any(kind.plain for kind in mine):
            return _SPECIAL
        if any(name in kind.failing and not kind.local for kind in self._kinds):
            return _FAILING
        # The name that every class has counts only where somebody asks for it, so it is in nobody's way but its own.
        others = {other for kind in mine for other in kind.matched if other != name}
        others = {other for other in others if other in named or name not in named}
        return (
            f"which has devices that are of DeviceClass {min(others)} too: Covey cannot count them twice"
            if others
            else None
        )

    def _nodes_of(self, pool: PoolId) -> set[str]:
        return {node for name in self._pools.get(pool, ()) if (node := self._slices[name].spec.node_name)}

    def _nodes_with(self, devices: Collection[DeviceId]) -> set[str]:
        return {node for pool in {device[:2] for device in devices} for node in self._nodes_of(pool)}


def _traits_in(slice_: core.ResourceSlice, conditions: Mapping[str, Condition]) -> tuple[_Traits, ...]:
    return tuple(_traits_of(slice_.spec, device, conditions) for device in slice_.spec.devices or ())


def _traits_of(spec: core.ResourceSliceSpec, device: core.Device, conditions: Mapping[str, Condition]) -> _Traits:
    answers = {name: judge(spec.driver, device) for name, judge in conditions.items()}
    special = (
        device.consumes_counters,
        device.allow_multiple_allocations,
        device.binding_conditions,
        device.node_allocatable_resources,
    )
    matched = frozenset(name for name, answer in answers.items() if answer)
    failing = frozenset(name for name, answer in answers.items() if answer is None)
    local = bool(spec.node_name)
    return _intern(_Traits(matched, failing, local, local and not any(special)))


def _own_devices(node: core.Node) -> frozenset[str]:
    own = node.status.allocatable or {}
    return frozenset(each for each, value in own.items() if "/" in each and amount(each, value) > 0)


@lru_cache(maxsize=1024)
def _intern(traits: _Traits) -> _Traits:
    return traits


def _condition(class_: core.DeviceClass) -> Condition | None:
    """The selectors of a class, joined; None if one of them is not known."""
    expressions = ((each.get("cel") or {}).get("expression", "") for each in class_.spec.selectors or ())
    try:
        return all_of([parse_selector(each) for each in expressions])
    except (ValueError, RecursionError):  # a number of thousands of digits, parentheses a thousand deep
        return None


def _birth(class_: core.DeviceClass) -> str:
    """RFC 3339 in UTC sorts as text."""
    return class_.metadata.creation_timestamp


def _devices_of(claim: core.ResourceClaim) -> tuple[DeviceId, ...]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else None
    return tuple((each.driver, each.pool, each.device) for each in results or () if not each.admin_access)


def _pod_of(claim: core.ResourceClaim) -> str | None:
    """The UID of the pod for whose extended resources kube-scheduler made a claim."""
    owner = claim.metadata.controller
    return owner.uid if owner and claim.metadata.annotation(EXTENDED_CLAIM) == "true" else None
