"""Devices of drivers as amounts of extended resources, node by node (KEP-5004). Pure.

Where a node offers none of an extended resource itself, kube-scheduler makes a claim for the pod's devices instead, of
the DeviceClass that stands behind the resource: by ``extendedResourceName``, else by the name that every class has,
``deviceclass.resource.kubernetes.io/<class>``. What such a node offers is what the allocator would still give:

* devices of pools of which every slice of the newest generation is there, and no name twice;
* that match the class (``selectors``) and have no taint, by themselves or by a DeviceTaintRule;
* that no claim has.

It is a number only where devices are interchangeable; which resources that is true of ``classes`` finds out. Devices of
more than one node, and those that share counters, may be allocated several times or need a step of their own before
they are bound, count nothing.

A pod that holds room is counted by its requests. The claim that kube-scheduler makes for it takes the same devices; so
once that is allocated, its devices are no capacity any more, and the pod's requests are added to it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from covey.api import core
from covey.placement.cluster.classes import DeviceClasses, Traits, traits_of
from covey.placement.cluster.device_claims import MOST_DEVICES, DeviceAsk
from covey.placement.cluster.resources import amount
from covey.placement.cluster.selectors import DeviceCondition, Field, read_fields

#: Marks the claim that kube-scheduler makes for a pod's extended resources.
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
_HARD: Final = ("NoSchedule", "NoExecute")
#: Kinds of devices that are told apart at a time, so that each is judged once.
_REMEMBERED: Final = 1024

#: Driver and pool; with the name of a device it is a device.
PoolId = tuple[str, str]
DeviceId = tuple[str, str, str]
#: Name and amount of what a pod requests.
Requests = Iterable[tuple[str, int]]


class DeviceCounts:
    """Slices, classes, claims and taint rules, and what follows from them. Each setter returns the nodes to be looked at again."""

    def __init__(self) -> None:
        self._slices: dict[str, core.ResourceSlice] = {}
        self._traits: dict[str, tuple[Traits, ...]] = {}
        #: How many devices of a node have which traits, and how many nodes have which traits together.
        self._kinds_on: dict[str, Counter[Traits]] = {}
        self._mixes: Counter[frozenset[Traits]] = Counter()
        #: Names of the slices of a pool, and the pools of a node.
        self._pools: dict[PoolId, set[str]] = {}
        self._pools_of: dict[str, Counter[PoolId]] = {}
        self.classes = DeviceClasses()
        self._rules: dict[str, core.TaintedDevices] = {}
        #: What each claim has, and the UID of the pod for whose extended resources it was made.
        self._claims: dict[tuple[str, str], tuple[tuple[DeviceId, ...], str | None]] = {}
        self._allocated: Counter[DeviceId] = Counter()
        #: UID of a pod → the allocated claims that say they are for its extended resources. Anybody may write that on his.
        self._special: dict[str, set[tuple[str, str]]] = {}
        self._offered: dict[str, frozenset[str]] = {}
        self._offering: Counter[str] = Counter()

    def set_slice(self, slice_: core.ResourceSlice) -> Collection[str]:
        """Take over a slice as it is now."""
        name, spec = slice_.metadata.name, slice_.spec
        touched = self._forget(name)
        pool = (spec.driver, spec.pool.name)
        self._slices[name] = slice_
        self._pools.setdefault(pool, set()).add(name)
        if spec.node_name:
            self._pools_of.setdefault(spec.node_name, Counter())[pool] += 1
        self._traits[name] = tuple(
            traits_of(slice_.spec, device, None, self.classes.conditions) for device in slice_.spec.devices or ()
        )
        self._mix(spec.node_name, self._kinds_on.get(spec.node_name, Counter()) + Counter(self._traits[name]))
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
        return self._judge_all() if self.classes.note(class_) else ()

    def remove_class(self, name: str) -> Collection[str]:
        """Forget a DeviceClass."""
        return self._judge_all() if self.classes.drop(name) else ()

    def ask(self, pod: core.Pod, asks: Collection[DeviceAsk], yielding: Collection[DeviceAsk] = ()) -> bool:
        """Note all that the claims of a pod ask for, nothing once it is gone; tells whether ``judge`` is due.

        Args:
            pod: the pod.
            asks: what they ask for.
            yielding: what of it must refuse nobody: the pod has it already, or is of no gang.
        """
        return self.classes.ask(pod, asks, yielding)

    def judge(self) -> Iterator[None]:
        """The classes have changed: judge every device by what is new, slice by slice. Until the end all stays as it was."""
        following = self.classes.follow()
        if not following.judges_like(self.classes):
            judged: dict[str, tuple[core.ResourceSlice, tuple[Traits, ...]]] = {}
            kinds: dict[str, Counter[Traits]] = {}
            names, former = self._slices.keys(), self.classes.conditions
            kept = frozenset(name for name, condition in following.conditions.items() if former.get(name) is condition)
            new = {name: condition for name, condition in following.conditions.items() if name not in kept}
            judgement = _Judgement(new, kept)
            while late := [
                name for name in names | judged.keys() if judged.get(name, "-")[0] is not self._slices.get(name)
            ]:
                for name in late:
                    before, now = judged.pop(name, None), self._slices.get(name)
                    if before:
                        kinds[before[0].spec.node_name] -= Counter(before[1])
                    if now:
                        known = zip(now.spec.devices or (), self._traits[name], strict=True)
                        judged[name] = (now, tuple(judgement.judge(now.spec, *device) for device in known))
                        kinds.setdefault(now.spec.node_name, Counter()).update(judged[name][1])
                    yield
            self._traits = {name: judged[name][1] for name in self._slices}
            self._kinds_on = {node: kind for node, kind in kinds.items() if kind}
            self._mixes = Counter(map(frozenset, self._kinds_on.values()))
        self.classes = following.catch_up(self.classes)
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
        if not self.classes.known:
            return node
        free = self._free(node.metadata.name)
        for uid, requests in held:
            if uid in self._special:
                free.update(self._own_of(uid, dict(requests), node.metadata.name))
        offered = _own_devices(node)
        more = {resource: n for resource, n in free.items() if n and resource not in offered}
        if not more:
            return node
        allocatable = {**(node.status.allocatable or {}), **more}
        return replace(node, status=replace(node.status, allocatable=allocatable))

    def _own_of(self, pod: str, requests: Mapping[str, int], node: str) -> dict[str, int]:
        """Count devices of the claims for a pod, as far as it requests them; not those that are known to be of another node."""
        here = self._pools_of.get(node, ())
        mine = [id_ for key in self._special[pod] for id_ in self._claims[key][0]]
        mine = [id_ for id_ in mine if id_[:2] in here or id_[:2] not in self._pools]
        # A claim may have its devices before another one of the same pod has; those whose slice is away may be any.
        matched: dict[DeviceId, frozenset[str]] = {}
        for pool in {id_[:2] for id_ in mine if id_[:2] in self._pools}:
            for name in self._pools[pool]:
                for device, traits in zip(self._slices[name].spec.devices or (), self._traits[name], strict=True):
                    id_ = (*pool, device.name)
                    matched[id_] = matched.get(id_, frozenset()) | traits.matched
        own = {}
        counted = self.classes.served.keys() | self.classes.problems.keys() | self.classes.shared.keys()
        for resource in requests.keys() & counted:
            key = self.classes.served.get(resource)
            most = sum(key is None or id_ not in matched or key in matched[id_] for id_ in mine)
            own[resource] = min(requests[resource], most)
        return own

    def is_served(self, resource: str) -> bool:
        """Tell whether some devices that are counted stand behind a resource."""
        name = self.classes.served.get(resource)
        return name is not None and any(name in kind.matched and kind.plain for mix in self._mixes for kind in mix)

    def problem(self, resource: str) -> str | None:
        """Return why nothing can be planned that asks for a resource; None where nodes offer it themselves."""
        return None if self._offering[resource] else self.classes.problems.get(resource)

    def find_excess(self, requests: Requests) -> str | None:
        """Find why kube-scheduler could not make its one claim for all extended resources of a pod: too many devices.

        Args:
            requests: of the pod, without what its own claims ask for.
        """
        amounts = {
            name: amount for name, amount in requests if name in self.classes.served and not self._offering[name]
        }
        if sum(amounts.values()) <= MOST_DEVICES:
            return None
        wanted = ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))
        return f"a pod asks for {wanted}, and the one claim that is made for it may have {MOST_DEVICES} devices: ask for fewer"

    def _note_offers(self, node: str, offered: frozenset[str]) -> None:
        before = self._offered.pop(node, frozenset())
        if offered:
            self._offered[node] = offered
        self._offering += Counter(offered - before)
        self._offering -= Counter(before - offered)

    def _free(self, node: str) -> Counter[str]:
        """The devices of a node that may be allocated, by resource; none where selectors fail on one of them, usable or not."""
        kinds, failing = Counter[Traits](), set[str]()
        for pool in self._pools_of.get(node, ()):
            newest = self._newest(pool)
            for slice_ in (self._slices[name] for name in self._pools[pool]):
                if slice_.spec.node_name != node:
                    continue
                for device, traits in zip(slice_.spec.devices or (), self._traits[slice_.metadata.name], strict=True):
                    failing |= traits.failing
                    if traits.plain and slice_ in newest and self._is_available(pool, device):
                        kinds[traits] += 1
        counts = Counter[str]()
        for traits, count in kinds.items():
            counts.update(dict.fromkeys(traits.matched, count))
        free = {resource: counts[name] for resource, name in self.classes.served.items() if name not in failing}
        for resource, names in self.classes.shared.items():
            amounts = [counts[name] for name in names]
            meet = any(traits.matched.issuperset(names) for traits in kinds)
            free[resource] = max(amounts) if meet else sum(amounts)
        return Counter(free)

    def _newest(self, pool: PoolId) -> list[core.ResourceSlice]:
        """The slices of the newest generation of a pool; none unless it is complete and valid."""
        slices = [self._slices[name] for name in self._pools[pool]]
        newest = max(slice_.spec.pool.generation for slice_ in slices)
        current = [slice_ for slice_ in slices if slice_.spec.pool.generation == newest]
        if any(slice_.spec.pool.resource_slice_count != len(current) for slice_ in current):
            return []
        names = [device.name for slice_ in current for device in slice_.spec.devices or ()]
        return current if len(set(names)) == len(names) else []

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
        self._mix(spec.node_name, self._kinds_on.get(spec.node_name, Counter()) - Counter(self._traits.pop(name)))
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

    def _mix(self, node: str, kinds: Counter[Traits]) -> None:
        """Note which traits a node's devices have; under the empty name, those of more than one node."""
        before = self._kinds_on.pop(node, None)
        if before:
            self._mixes -= Counter([frozenset(before)])
        if kinds:
            self._kinds_on[node] = kinds
            self._mixes[frozenset(kinds)] += 1

    def _settle(self) -> set[str]:
        """Find out which resources can be counted. Returns all nodes where that has changed."""
        return set(self._pools_of) if self.classes.settle(self._mixes.keys()) else set()

    def _nodes_of(self, pool: PoolId) -> set[str]:
        return {node for name in self._pools.get(pool, ()) if (node := self._slices[name].spec.node_name)}

    def _nodes_with(self, devices: Collection[DeviceId]) -> set[str]:
        return {node for pool in {device[:2] for device in devices} for node in self._nodes_of(pool)}


class _Judgement:
    """Judges devices by conditions that are new, beside what is known by those that are kept: those that are alike once."""

    def __init__(self, new: Mapping[str, DeviceCondition], kept: frozenset[str]) -> None:
        self._new, self._kept = new, kept
        self._fields = tuple(frozenset[Field]().union(*(condition.fields for condition in new.values())))
        self._judged: dict[tuple[object, ...], Traits] = {}

    def judge(self, spec: core.ResourceSliceSpec, device: core.Device, known: Traits) -> Traits:
        alike = (spec.driver, known, *read_fields(spec.driver, device, self._fields))
        traits = self._judged.get(alike)
        if traits is None:
            traits = traits_of(spec, device, known, self._new, self._kept)
            if len(self._judged) < _REMEMBERED:  # a selector may ask for what no two devices have in common
                self._judged[alike] = traits
        return traits


def _own_devices(node: core.Node) -> frozenset[str]:
    own = node.status.allocatable or {}
    return frozenset(resource for resource, value in own.items() if "/" in resource and amount(resource, value) > 0)


def _devices_of(claim: core.ResourceClaim) -> tuple[DeviceId, ...]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation else None
    return tuple(
        (allocated.driver, allocated.pool, allocated.device)
        for allocated in results or ()
        if not allocated.admin_access
    )


def _pod_of(claim: core.ResourceClaim) -> str | None:
    """The UID of the pod for whose extended resources kube-scheduler made a claim."""
    owner = claim.metadata.controller
    return owner.uid if owner and claim.metadata.annotation(EXTENDED_CLAIM) == "true" else None
