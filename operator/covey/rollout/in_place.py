"""In-place updates: old replicas that become new ones by other images in their pods.

The windows are the same: a replica that is updated in place is an old one that was to go and a new one that was to come,
so what a deletion may take from the serving ones is all that an in-place update takes. ``maxUnavailable: 0`` therefore
brings a surge replica first; where that has no place, an old one that is cleared is updated in place in its stead. When
the old side ends, the surge has served its purpose: the last old replicas are updated in place as well, and the surge
goes once they serve.

A revision arrives with all its roles: nothing is updated in place while another changing role would still wait for its
first new replica to be placed. Until then its first ones come as new replicas, together, as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from covey.rollout.model import RoleState, RolloutReplica, Stage
from covey.rollout.window import Window

#: A changing role, its window, and its replicas that stay as they are.
Rolled = tuple[RoleState, Window, Collection[int]]


def choose_in_place(roles: Mapping[str, Rolled]) -> Mapping[str, Sequence[int]]:
    """The replicas of each changing role that are to be updated in place now."""
    rolled_numbers = {name: _leaving(*rolled) for name, rolled in roles.items()}
    arrives = all(
        rolled_numbers[name] or _placed_numbers(state.updated) for name, (state, _, _) in roles.items() if state.wanted
    )
    return rolled_numbers if arrives else dict.fromkeys(roles, ())


def expected_back(replicas: Mapping[int, RolloutReplica], number: int) -> list[int]:
    """Replicas that do not serve now because they are updated in place, and will be among the first ``number``."""
    return [n for n in sorted(replicas)[:number] if replicas[n].updating]


def _leaving(state: RoleState, window: Window, kept: Collection[int]) -> Sequence[int]:
    """Those that leave the old side, as far as the new one has use for them: the lowest numbers."""
    candidates = {n for n, replica in state.outdated.items() if replica.updatable and n not in kept}
    placed = {n for n in _placed_numbers(state.new) if n in kept}
    surge = state.budget.surge if window.old + window.new <= state.wanted else 0
    first = sorted(candidates | placed)[: window.new]
    return [n for n in first if n in candidates][: max(0, window.new - len(placed)) + surge]


def _placed_numbers(replicas: Mapping[int, RolloutReplica]) -> Collection[int]:
    return [n for n, replica in replicas.items() if replica.stage > Stage.WAITING]
