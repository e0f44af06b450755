"""The window of a rollout: replicas of each side that a unit may have next.

Of each role, with ``n`` wanted, ``s`` surge and ``u`` unavailable:

=========  ============================================================================================================
ceiling    ``n + s``: replicas of both sides together. Those on their way out are not counted.
floor      ``n - u``: serving replicas that must stay. Not below ``minReplicas`` where the role has more than its
           minimum, and not zero for a role of the gang where a second replica may exist.
need       The old side ends, in all roles at once, when the new one serves as many as the floor everywhere.
keep       Old replicas that must stay until then: what the new side lacks of the floor, and one, so that no role of a
           revision is there without the others.
room       ``ceiling - keep``: new replicas that may exist.
pace       The share of their replicas that all changing roles may have now: as large as every room allows. A role that
           keeps a single old replica does not hold the others up by one.
=========  ============================================================================================================

A role whose ceiling is one replica cannot have two revisions: it has its old one replaced when the others begin.

What does not serve counts as if it did until the new side has shown that it can serve: otherwise a new revision that
never gets ready would take the place of every old replica that is lost. After that it goes first.

**Where a surge has no place** and it is proven that it would have one without some old replicas, these are ``cleared``: a
role whose new replicas wait then has no surge, and where ``maxUnavailable`` is not given exactly these go, in one step.
Who asks for the proof, and where it comes from, is none of this (``operator.rolling.succession``).

Lower bound of waves (a wave: all that was created gets Ready): whatever the other roles do, ``w`` new replicas serving
allow at most ``n + s - max(1, n - u - w)`` of them, one being kept until ``w`` is at the floor; so a role alone needs
as many waves as it takes ``w -> min(n, n + s - max(1, n - u - w))`` to get from 0 to ``n``, about ``n / (s + u)``, and
a unit at least as many as its slowest role. ``tests/unit/rollout/test_waves.py`` compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covey.rollout.model import RoleState, Stage, serving


@dataclass(frozen=True, slots=True)
class Window:
    """Replicas of each side that one role may have next."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class _CountedRole:
    """One changing role, counted."""

    state: RoleState
    old: int
    new: int
    #: New replicas that serve.
    ready: int
    #: Old replicas that may serve, as far as that is known.
    hopeful: int
    ceiling: int
    floor: int
    #: Old replicas that are to stay for good.
    kept: int
    #: Those that are cleared, of the ones that may serve.
    cleared: int

    @property
    def most(self) -> int:
        """New replicas that it may have in the end."""
        return max(0, self.state.wanted - self.kept)

    @property
    def is_carried(self) -> bool:
        """The new side can do without the old one."""
        return self.ready >= self.floor

    @property
    def keep(self) -> int:
        """Old replicas that must stay now."""
        pair = 1 if self.ceiling > 1 and self.state.wanted else 0
        lacking = self.state.wanted - self.ready if self.cleared else self.floor - self.ready
        return min(self.old, max(self.kept, pair, min(self.hopeful - self.cleared, lacking)))

    @property
    def room(self) -> int:
        """New replicas that may exist now."""
        return max(0, self.ceiling - self.keep)

    def pace(self, of: int) -> int:
        """The fastest pace, ``of`` at most, that its room allows."""
        # Only its last old replica may be in the way of one more: that goes when the others are as far.
        limit = self.room + (self.keep == 1)
        return of if self.most <= limit else limit * of // self.state.wanted

    def share(self, pace: int, of: int) -> int:
        """New replicas at a pace, rounded up."""
        return min(-(-self.state.wanted * pace // of), self.most)


def windows(roles: Mapping[str, RoleState]) -> Mapping[str, Window] | None:
    """The window of each changing role; None where a partition holds them all.

    Args:
        roles: the roles that have replicas of another revision than their target.
    """
    # A role that shall have none keeps none, and is gone in the next step.
    partitioned = any(state.budget.partition for state in roles.values() if state.wanted)
    proven = all(serving(state.new) or not state.wanted for state in roles.values())
    counted = {name: _count(state, partitioned=partitioned, proven=proven) for name, state in roles.items()}
    active = [role for role in counted.values() if role.state.wanted]
    if any(role.most == 0 for role in active):
        return None
    if all(role.is_carried for role in active) and not any(role.kept for role in active):
        return {name: Window(0, role.most) for name, role in counted.items()}
    of = max((role.state.wanted for role in active), default=0)
    pace = min((role.pace(of) for role in active), default=0)
    return {name: _window(role, pace, of) for name, role in counted.items()}


def floor(state: RoleState) -> int:
    """Serving replicas of a role that no deletion may go below."""
    wanted, least, budget = state.wanted, state.minimum, state.budget
    if state.makes_room and budget.unavailable is None:
        going = serving({n: replica for n, replica in state.old.items() if n in state.cleared})
        return min(wanted, max(least, serving(state.alive) - going))
    kept = max(0, wanted - (budget.unavailable or 0))
    if least < wanted:
        kept = max(kept, least)
    return max(kept, 1) if least and wanted + (0 if state.makes_room else budget.surge) > 1 else kept


def _count(state: RoleState, *, partitioned: bool, proven: bool) -> _CountedRole:
    old = state.old
    hopeful = {n for n, replica in old.items() if not proven or replica.stage >= Stage.DOUBTFUL}
    kept = max(state.budget.partition, 1 if partitioned else 0)
    kept = min(kept, len(old), state.wanted)
    gives = state.makes_room and state.budget.unavailable is None
    return _CountedRole(
        state,
        old=len(old),
        new=len(state.new),
        ready=min(serving(state.new), state.wanted - kept),
        hopeful=len(hopeful),
        ceiling=state.wanted + (0 if state.makes_room else state.budget.surge),
        floor=floor(state),
        kept=kept,
        cleared=len(hopeful & state.cleared) if gives else 0,
    )


def _window(role: _CountedRole, pace: int, of: int) -> Window:
    if not role.state.wanted:
        return Window(0, 0)
    new = max(min(role.new, role.most), min(role.share(pace, of), role.room))
    # The surge is given back when there is nothing more to bring, or no room for it.
    old = role.keep if role.state.makes_room or role.ready >= role.most else max(role.keep, role.ceiling - new)
    return Window(min(role.old, old), new)
