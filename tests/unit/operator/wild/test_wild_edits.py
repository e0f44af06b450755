"""Edits, reversals, scales, deaths and drains with late watches, refused requests and kills: what was asked for last runs."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.api.inference import DisaggregatedInference
from unit.operator import test_edit_storm
from unit.operator.test_edit_storm import ROLES, UPDATES, Storm, assert_ended, pairs
from unit.operator.wild.rough import Event, roughen, with_roughness
from unit.operator.wild.wild_world import Wild
from unit.operator.world import World

#: Seconds after which a process that works has seen everything.
_SEEN: Final = 2.0
_NAMES: Final = {"act": "pass", "crash": "kill"}


class WildStorm(Storm):
    """A storm over an operator that is a process."""

    def __init__(self, seed: int, *asked: Any) -> None:
        self._seed = seed
        super().__init__(*asked)

    def begin(self, resource: DisaggregatedInference) -> World:
        self.wild = Wild(resource, self._seed)
        self.wild.checks.append(self.check)
        self._touched, self._before = 0.0, dict.fromkeys(ROLES, 0)
        self.wild.settle()
        return self.wild.truth()

    def happen(self, kind: str, number: int) -> None:
        if not roughen(self.wild, (kind, number), _NAMES):
            with self.wild.hands() as self.world:
                super().happen(kind, number)
            self._touched = self.wild.now

    def check(self, world: World) -> None:
        """A write of the operator's gives up no more than it may, unless it cannot know yet what has happened."""
        self.world, before = world, self._before
        self._before = self.ready()
        if self.wild.now - self._touched > _SEEN and not self.wild.trouble.lags:
            for name, wanted, update in zip(ROLES, self.replicas, self.updates, strict=True):
                missing = UPDATES[update][1]
                least = max(1, wanted - missing) if wanted > 1 or not missing else 0
                assert self._before[name] >= min(before[name], least), (name, before, self._before)

    def end(self) -> None:
        """Let all go well until nothing is left to be done."""
        for _ in range(60):
            self.wild.settle()
            with self.wild.hands() as self.world:
                for name in list(self.world.pods):
                    self.serve(name)
            self._touched = self.wild.now
            before = self.wild.server.version
            self.wild.run(31)
            self.wild.settle()
            if self.wild.server.version == before and "rollout" not in self.wild.truth().status:
                break
        self.world = self.wild.truth()


@settings(settings.get_profile("storm"))
@given(
    pairs,
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([(0, 0), (30, 0), (30, 20)]),
    st.tuples(*[st.integers(0, 2)] * 2),
    with_roughness(test_edit_storm.event),
    st.integers(0, 1 << 32),
)
def test_it_ends_with_what_was_asked_for_last(
    replicas: tuple[int, int],
    sizes: tuple[int, int],
    drains: tuple[int, int],
    updates: tuple[int, int],
    happened: list[Event],
    seed: int,
) -> None:
    storm = WildStorm(seed, replicas, sizes, drains, updates)
    with storm.wild:
        for kind, number in happened:
            storm.happen(kind, number)
        storm.end()
        assert_ended(storm)
