"""In-place updates: old replicas that become new ones by other images in their pods.

The windows are the same: a replica that is exchanged is an old one that was to go and a new one that was to come, so
what a deletion may take from the serving ones is all that an exchange takes. ``maxUnavailable: 0`` therefore brings a
surge replica first. When the old side ends, the surge has served its purpose: the last old replicas are exchanged as
well, and the surge goes once they serve.

A revision arrives with all its roles: nothing is exchanged while another changing role would still wait for its first
new replica to be placed. Until then its first ones come as new replicas, together, as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from covey.rollout.model import Replica, RoleState, Stage
from covey.rollout.window import Window

#: A changing role, its window, and its replicas that stay as they are.
Rolled = tuple[RoleState, Window, Collection[int]]


def exchanged(roles: Mapping[str, Rolled]) -> Mapping[str, Sequence[int]]:
    """The replicas of each changing role that are to be exchanged now."""
    found = {name: _leaving(*rolled) for name, rolled in roles.items()}
    arrives = all(found[name] or _placed(state.updated) for name, (state, _, _) in roles.items() if state.wanted)
    return found if arrives else dict.fromkeys(roles, ())


def awaited(replicas: Mapping[int, Replica], number: int) -> list[int]:
    """Replicas that do not serve now because they are exchanged, and will be among the first ``number``."""
    return [n for n in sorted(replicas)[:number] if replicas[n].exchanging]


def _leaving(state: RoleState, window: Window, kept: Collection[int]) -> Sequence[int]:
    """Those that leave the old side, as far as the new one has use for them: the lowest numbers."""
    candidates = {n for n, each in state.outdated.items() if each.exchangeable and n not in kept}
    placed = {n for n in _placed(state.new) if n in kept}
    surge = state.budget.surge if window.old + window.new <= state.wanted else 0
    first = sorted(candidates | placed)[: window.new]
    return [n for n in first if n in candidates][: max(0, window.new - len(placed)) + surge]


def _placed(replicas: Mapping[int, Replica]) -> Collection[int]:
    return [n for n, each in replicas.items() if each.stage > Stage.WAITING]
