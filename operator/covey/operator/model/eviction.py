"""Evictions (``lifecycle.k8s.io/v1alpha1``): somebody wants a pod gone, and its responders see to it one after another.

What Kubernetes has made of it (``evictionrequest_controller.go`` of 1.38):

===========  ===========================================================================================================
Active       it is this responder's turn. Twenty minutes without a heartbeat, and the next one has it
Completed    it has said that it is done, whether or not the pod is gone. The next one has its turn: the last of them is
             the eviction that budgets decide about
Interrupted  it was not heard of
Canceled     nobody wants the pod evicted any more
===========  ===========================================================================================================

Who has asked for a pod to go wants that for as long as it takes. So a replica is moved as soon as it can be also where
the operator has had its turn, until nobody asks for it any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from covey.api import constants as names
from covey.api import core

_ACTIVE: Final = "Active"
#: States in which it was, or had been, the responder's turn.
_TAKEN: Final = frozenset({_ACTIVE, "Completed", "Interrupted"})
_EVICTION: Final = "Eviction"
#: Conditions with which Kubernetes ends an Eviction.
_ENDED: Final = ("Failed", "TargetEvicted")
#: Requesters that a message names.
_NAMED: Final = 3
#: Seconds between two heartbeats that say the same: Kubernetes hands an Eviction on after twenty minutes without one. And
#: those between any two, as it asks for.
HEARTBEAT: Final = 180.0
_LEAST: Final = 20.0
#: Longest message of a responder.
MAX_MESSAGE: Final = 4000


class PodReference(core.Read, frozen=True):
    """``EvictionPodReference``."""

    name: str
    uid: str


class Target(core.Read, frozen=True):
    """``EvictionTarget``: a pod; None for what later releases may have besides."""

    pod: PodReference | None = None


class EvictionSpec(core.Read, frozen=True):
    """``EvictionSpec``."""

    target: Target = Target()


class Requester(core.Read, frozen=True):
    """``Requester``: who has asked for it, and whether that still stands."""

    name: str
    intent: str = ""


class TargetResponder(core.Read, frozen=True):
    """``TargetResponder``: how far Kubernetes has come with a responder."""

    name: str
    state: str = ""


class ResponderStatus(core.Read, frozen=True):
    """``ResponderStatus``: what a responder has said."""

    name: str
    start_time: str | None = None
    heartbeat_time: str | None = None
    completion_time: str | None = None
    message: str = ""


class EvictionStatus(core.Read, frozen=True):
    """``EvictionStatus``."""

    conditions: tuple[core.Condition, ...] | None = None
    requesters: tuple[Requester, ...] | None = None
    target_responders: tuple[TargetResponder, ...] | None = None
    responders: tuple[ResponderStatus, ...] | None = None


class Eviction(core.Read, frozen=True):
    """An Eviction, as the operator reads it."""

    metadata: core.Meta
    spec: EvictionSpec = EvictionSpec()
    status: EvictionStatus = msgspec.field(default_factory=EvictionStatus)

    @property
    def target(self) -> PodReference | None:
        """The pod that is to go."""
        return self.spec.target.pod

    @property
    def requesters(self) -> str:
        """The names of those who want it now, for people."""
        wanted = [requester.name for requester in self.status.requesters or () if requester.intent == _EVICTION]
        more = f" and {len(wanted) - _NAMED} more" if len(wanted) > _NAMED else ""
        return ", ".join(wanted[:_NAMED]) + more

    @property
    def is_wanted(self) -> bool:
        """Tell whether somebody wants the pod to go, and it is, or has been, the operator's turn to see to that."""
        conditions = self.status.conditions or ()
        ended = any(condition.type in _ENDED and condition.status == "True" for condition in conditions)
        return not ended and bool(self.requesters) and self._state in _TAKEN

    @property
    def is_due(self) -> bool:
        """Tell whether Kubernetes waits for an answer of the operator."""
        answered = self.answered
        return self._state == _ACTIVE and answered is not None and answered.completion_time is None

    @property
    def answered(self) -> ResponderStatus | None:
        """What the operator has said so far; None where Kubernetes has not asked."""
        responders = self.status.responders or ()
        return next((status for status in responders if status.name == names.EVICTION_RESPONDER), None)

    @property
    def _state(self) -> str:
        responders = self.status.target_responders or ()
        return next((responder.state for responder in responders if responder.name == names.EVICTION_RESPONDER), "")


@dataclass(frozen=True, slots=True)
class EvictionAnswer:
    """What the operator says of an Eviction.

    ``until``: when the pod should be gone, in seconds since the epoch; None where nobody knows. With ``completes`` it has
    done what it can.
    """

    message: str
    completes: bool = False
    until: float | None = None

    def seconds_left(self, answered: ResponderStatus, now: float) -> float:
        """Seconds until it is to be said, after what was said last; that something is done is said at once."""
        last = core.seconds(answered.heartbeat_time)
        if last is None or self.completes:
            return 0.0
        return last + (HEARTBEAT if self.message == answered.message else _LEAST) - now
