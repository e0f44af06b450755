"""Plans with Kubernetes' own groups: the minimum first, groups that are deleted, and changes that the API would refuse."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.inferences import inference, role
from covey.api import core
from covey.backends import Cluster, Identity
from covey.backends.kubernetes import Hierarchical
from covey.model import podstate
from unit.operator.world import World

GROUP = "PodGroup.v1beta1.scheduling.k8s.io"
PARENT = "CompositePodGroup.v1alpha3.scheduling.k8s.io"
PLACED = core.Condition("PodGroupInitiallyScheduled", "True", "Scheduled")
AT = "2026-01-01T00:00:00Z"


class Native(World):
    """A world whose API server keeps a PodGroup that is deleted while pods are of it."""

    def __init__(self, *roles: dict[str, Any], **spec: Any) -> None:
        super().__init__(inference(*roles, backend="Kubernetes", **spec))
        self.cluster = Cluster(kept=frozenset(probe.name for probe in Hierarchical().probes()))

    def act(self) -> None:
        """One pass, and what terminates goes."""
        self.carry_out()
        self.finish_all()

    def finish_all(self) -> None:
        """What terminates goes; a group only when nothing keeps it."""
        self.finish()
        for identity, owned in list(self.objects.items()):
            if owned.metadata.deletion_timestamp and identity[1] not in self.members():
                del self.objects[identity]

    def rest(self) -> None:
        """Passes until nothing is to be done."""
        for _ in range(20):
            self.finish_all()
            if not self.plan().actions:
                return
            self.act()
        raise AssertionError(f"still to do: {self.plan().actions}")

    def _remove(self, action: Any) -> None:
        if action.type == GROUP:
            self.end(action.name)
        else:
            super()._remove(action)

    def end(self, group: str) -> None:
        """Somebody deletes a PodGroup."""
        self.edit((GROUP, group), metadata={"deletion_timestamp": AT})

    def edit(self, identity: Identity, **fields: Any) -> None:
        owned = self.objects[identity]
        for field, values in fields.items():
            changed = msgspec.structs.replace(getattr(owned, field), **values)
            owned = msgspec.structs.replace(owned, **{field: changed})
        self.objects[identity] = owned

    def members(self, *, bound: bool = False) -> list[str]:
        """Groups of the pods, one for each pod."""
        pods = [pod for pod in self.pods.values() if podstate.is_bound(pod) or not bound]
        return sorted((pod.spec.scheduling_group or {}).get("podGroupName", "") for pod in pods)

    def place(self) -> None:
        """kube-scheduler places every pod that is there."""
        for name in [name for name, pod in self.pods.items() if not podstate.is_bound(pod)]:
            self.bind(name)
        for identity in [each for each in self.objects if each[0] == GROUP and each[1] in self.members()]:
            self.edit(identity, status={"conditions": (PLACED,)})


@pytest.fixture
def world() -> Native:
    found = Native(
        role("prefill", replicas=2, size=2), role("decode", replicas=3, minReplicas=2), role("router", minReplicas=0)
    )
    found.rest()
    return found


ALL = ["", *["llama-0-decode"] * 3, *["llama-0-prefill-0"] * 2, *["llama-0-prefill-1"] * 2]


def test_what_is_bound_makes_up_the_minimum(world: Native) -> None:
    """A bound surplus replica stands in for one that is lost: nobody has to give way."""
    world.place()
    world.rest()
    world.place()
    world.fail(next(name for name, pod in world.pods.items() if "prefill-0-0" in (pod.spec.hostname or "")))
    world.rest()
    assert world.members() == ALL


def uids(world: Native, unit: int) -> set[str]:
    return {pod.metadata.uid for pod in world.pods.values() if pod.metadata.label("covey.dev/unit") == str(unit)}


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["crash", "act", "place", "fail", "vanish", "end", "lose", "forget"]), st.integers(0, 99)
    ),
    max_size=12,
)


@settings(settings.get_profile("storm"))
@given(EVENTS)
def test_whatever_happens_ends_whole(events: list[tuple[str, int]]) -> None:
    """Crashes between two writes, losses, and people who delete groups: in the end everything is there and bound."""
    world = Native(
        role("prefill", replicas=2, size=2), role("decode", replicas=3, minReplicas=2), role("router", minReplicas=0)
    )
    world.notes = True
    for event, number in events:
        happen(world, event, number)
    for _ in range(8):
        world.rest()
        world.place()
        world.now += 600  # who has failed again and again waits
    world.rest()
    assert world.members(bound=True) == ALL
    # A group that pods with nodes keep is the only one that may still be going.
    for (kind, name), owned in world.objects.items():
        assert owned.metadata.deletion_timestamp is None or (kind == GROUP and name in ALL)


def happen(world: Native, event: str, number: int) -> None:
    pods, groups = sorted(world.pods), sorted(name for kind, name in world.objects if kind == GROUP)
    match event:
        case "crash":
            for step in itertools.islice(world.steps(world.plan().actions), number % 7):
                step()
        case "act":
            world.act()
        case "place":
            world.place()
        case "fail" if pods:
            world.fail(pods[number % len(pods)])
        case "vanish" if pods:
            world.vanish(pods[number % len(pods)])
        case "end" if groups:
            world.end(groups[number % len(groups)])
        case "lose":
            for identity in [each for each in world.objects if each[0] == PARENT][: number % 3]:
                del world.objects[identity]
        case "forget":
            world.forget()
        case _:
            pass
