"""The seam between the scheduling cycle and what takes part in it: kube-scheduler's extension points.

A plugin says what it has to say at some of these points and leaves out the others: a unit is assessed, who is next, a
cycle (pre-filter, snapshot, reserve, post-filter), events that may help who waits. Where several speak, the order of the
list decides (``cycle``). What one unit is asked in one cycle is its ``CycleState``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from covey.admission.entitlement import FIRST, Lane
from covey.admission.entry import Entry
from covey.admission.nodes import Key
from covey.admission.tree import Unit
from covey.api import core
from covey.placement.cluster.inventory import Inventory
from covey.placement.model import Gang, Refusal
from covey.scheduler.commit import Placement
from covey.scheduler.decisions_in_flight import Commits
from covey.scheduler.fair_loop import FairLoop
from covey.scheduler.queue import SchedulingQueue


@dataclass(slots=True)
class CycleState:
    """One unit in one cycle, as pre-filters leave it to those behind them.

    ``gang`` is what is planned, ``closed`` the gangs (UIDs) whose nodes are closed to it. ``borrows``: what it gets can
    be claimed back. ``entitled`` is what the plugin that counts it has let it
    have, and compares when there is a plan. ``rejected``:
    a pre-filter has refused it, so it was not planned. ``refusal``: the planner's, where it was planned in this cycle.
    """

    root: Key
    entry: Entry
    gang: Gang
    closed: frozenset[str] = frozenset()
    borrows: bool = False
    entitled: object = None
    rejected: bool = False
    refusal: Refusal | None = None


class Rejection(NamedTuple):
    """A pre-filter's refusal. ``passes``: it ends by itself, and the unit is not counted as refused."""

    reason: str
    message: str
    passes: bool = False


class Nomination(NamedTuple):
    """What a refused unit gets instead of nodes: a claim, or none, and the answer about its successors.

    ``open``: plugins behind this one are asked as well.
    """

    claim: core.Claim | None
    succession: core.GroupSuccession | None = None
    open: bool = False


class Handle(Protocol):
    """The scheduler, as its plugins may use it (kube-scheduler's ``framework.Handle``)."""

    @property
    def queue(self) -> SchedulingQueue:
        """The units."""

    @property
    def fair_loop(self) -> FairLoop:
        """Turns of the event loop that long work gives to others."""

    @property
    def commits(self) -> Commits:
        """Decisions that are carried out beside the loop."""

    def nominate(self, root: Key, nomination: Nomination) -> None:
        """Give a refused unit its claim, or none."""


class Plugin:
    """A part of the scheduler that is not its core; every extension point has a default that does nothing."""

    #: The scheduler in which it takes part.
    handle: Handle

    def attach(self, handle: Handle) -> None:
        """Take part in a scheduler from now on."""
        self.handle = handle

    async def run(self, settled: Callable[[], Awaitable[object]]) -> None:
        """Work beside the loop for ever; ``settled`` returns when every unit has been looked at once."""

    # A unit, when something about it has changed

    def observe(self, unit: Unit) -> None:
        """Take notice of a unit as it is now, before it is assessed."""

    def assess(self, entry: Entry, before: Entry | None) -> Entry:
        """Amend the entry of a unit that is assessed; ``before`` is the one until now."""
        return entry

    def note_assessed(self, root: Key) -> None:
        """Take notice of a unit that was assessed, or is gone."""

    def note_entry(self, root: Key, entry: Entry) -> None:
        """Take notice of the new entry of a unit: assessed, refused, nominated or reserved."""

    def note_unschedulable(self, root: Key) -> None:
        """Take notice of a unit for which no nodes were found."""

    def note_nomination(self, root: Key) -> None:
        """Take notice of a unit whose claim has changed."""

    def forget(self, root: Key) -> None:
        """A unit is gone."""

    def deadlines(self, entry: Entry) -> Iterable[float]:
        """Seconds until time alone changes something for a unit."""
        return ()

    # Who is next

    def tier(self, entry: Entry) -> Lane:
        """The first key by which active units are ordered (QueueSort); priority and age decide inside a tier."""
        return FIRST

    def bounds_minimums(self, coming: Sequence[Entry]) -> bool:
        """Tell whether more than free nodes decides what these minimums will get."""
        return False

    # A cycle

    def pre_filter(self, state: CycleState) -> Rejection | None:
        """Confine what is planned of a unit, or refuse it (PreFilter)."""
        return None

    def parts(self, state: CycleState) -> Sequence[Gang]:
        """The parts in which surplus is planned, until one has a plan; none where it is not split."""
        return ()

    def snapshot(self, root: Key, inventory: Inventory) -> AbstractContextManager[None]:
        """Change the inventory while a unit is planned; nobody else looks at it meanwhile."""
        return nullcontext()

    def shares_refusal(self, root: Key) -> bool:
        """Tell whether a unit may be of an equivalence class: what is free to it is free to others."""
        return True

    def still_allows(self, state: CycleState, entry: Entry) -> bool:
        """Tell whether a plan may be carried out still; ``entry`` is the unit as it is now."""
        return True

    def place(self, root: Key) -> AbstractContextManager[None]:
        """Surround the moment in which a unit takes its nodes."""
        return nullcontext()

    def reserve(self, entry: Entry, nodes: Collection[str]) -> None:
        """Take notice of a unit that has taken nodes (Reserve)."""

    def permit(self, entry: Entry, placements: Sequence[Placement]) -> Rejection | None:
        """Take a decision over that is to be carried out later, and say what the unit waits for (Permit)."""
        return None

    async def post_filter(self, state: CycleState, entry: Entry) -> Nomination | None:
        """Nominate a refused unit (PostFilter); None leaves what stands, and asks those behind."""
        return None

    # Events

    async def wake(self) -> None:
        """Requeue units that wait for something else than nodes, if there may be some now."""

    async def wake_for_nodes(self, nodes: Collection[str]) -> None:
        """Requeue units of this plugin that nodes which have more free can help, before others are."""

    def nominated(self) -> Iterable[Key]:
        """Units to which other nodes are open than to their class: they are asked themselves."""
        return ()

    async def tick(self) -> None:
        """Do what is due once in a minute."""

    async def idle(self) -> bool:
        """Do one step of work for which there is time when nobody is active; False where there is none."""
        return False


def at(plugins: Iterable[Plugin], point: str) -> list[Plugin]:
    """Those that have something to say at an extension point, in their order."""
    default = getattr(Plugin, point)
    return [plugin for plugin in plugins if getattr(type(plugin), point) is not default]
