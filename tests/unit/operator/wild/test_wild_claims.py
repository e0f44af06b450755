"""Claims that come, shrink and go with late watches, refused requests and kills: only what one names goes, and whole."""

from __future__ import annotations

from itertools import chain
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from covey.api import core
from covey.operator.model import podstate
from covey.operator.model.claimed import RootClaim
from unit.operator import test_claim_storm
from unit.operator.test_claim_storm import check, check_names, resource, serve
from unit.operator.test_convergence import assert_is_wanted
from unit.operator.wild.rough import Event, roughen, with_roughness
from unit.operator.wild.wild_world import Wild
from unit.operator.world import World

#: Seconds after which a process that works has seen everything.
_SEEN: Final = 2.0
_NAMES: Final = {"act": "pass", "crash": "kill"}


class Claiming:
    """A resource that serves, the claims on it, and the laws of every write."""

    def __init__(self, seed: int, sizes: tuple[int, int], drains: tuple[int, int], minimum: int) -> None:
        self.wild = Wild(resource(sizes, drains, minimum), seed)
        self.wild.settle()
        with self.wild.hands() as world:
            serve(world)
        self.wild.settle()
        self._touched = self.wild.now
        self._before: dict[str, core.Pod] = dict(self.wild.truth().pods)
        #: The claims as they were, and until when.
        self._former: list[tuple[float, tuple[RootClaim, ...]]] = []
        self._lag = 0.0
        self.wild.checks.append(self.check)

    def check(self, world: World) -> None:
        """One write: it goes by what is stored, unless the process cannot know that yet, or may not write all."""
        before, self._before = self._before, dict(world.pods)
        trouble = self.wild.trouble
        self._lag = max([self._lag, *trouble.lags.values()])
        known = [each for until, each in self._former if until > self.wild.now - _SEEN - self._lag]
        check_names(world.inference.spec, tuple(chain(world.claims, *known)), before, world.pods)
        if self.wild.now - self._touched > _SEEN and not (trouble.lags or trouble.share or trouble.policies):
            check(world.inference.spec, world.claims, before, world.pods)

    def happen(self, kind: str, number: int) -> None:
        """What others do, and what is rough about it."""
        if not roughen(self.wild, (kind, number), _NAMES):
            with self.wild.hands() as world:
                self._former.append((self.wild.now, world.claims))
                test_claim_storm.happen(world, kind, number)
        self._touched = self.wild.now
        self._before = dict(self.wild.truth().pods)

    def end(self, *, claims: bool) -> None:
        """Let all go well until nothing is left to be done."""
        for _ in range(8):
            with self.wild.hands() as world:
                serve(world)
                self._former.append((self.wild.now, world.claims))
                if not claims:
                    world.claims = ()
            self.wild.settle()


@settings(settings.get_profile("storm"))
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from([(0, 0), (30, 0), (30, 20)]),
    st.integers(0, 2),
    with_roughness(test_claim_storm.event),
    st.integers(0, 1 << 32),
)
def test_only_what_is_named_goes_and_the_rest_serves(
    sizes: tuple[int, int], drains: tuple[int, int], minimum: int, happened: list[Event], seed: int
) -> None:
    storm = Claiming(seed, sizes, drains, minimum)
    with storm.wild:
        for kind, number in happened:
            storm.happen(kind, number)
        storm.end(claims=True)
        assert not any(map(podstate.claimed_by, storm.wild.truth().pods.values()))
        storm.end(claims=False)
        assert_is_wanted(storm.wild.truth())
