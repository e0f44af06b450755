"""The Evictions that name the operator, by the pods that they are of, and what is answered to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.kube.client import Client
from covey.kube.clock import Clock
from covey.kube.reflector import Reflector
from covey.kube.resources import EVICTIONS
from covey.kube.watch import EventType
from covey.operator.model.eviction import Eviction, EvictionAnswer
from covey.operator.observe.watched import Key, Watched

#: The index of Evictions by the UID of their pod.
_TARGET: Final = "target"


class Evicted:
    """A live copy of the Evictions.

    Args:
        client: to the API server.
        namespaces: those that are watched; none means all.
        on_change: called with the namespace and name of a pod when an Eviction of it has changed.
        respond: has an Eviction answered, by its namespace and name.
        clock: the time.
    """

    def __init__(
        self,
        client: Client,
        namespaces: Sequence[str],
        on_change: Callable[[Key], None],
        respond: Callable[[Key], None],
        *,
        clock: Clock,
    ) -> None:
        # Kubernetes labels an Eviction by its responders, each with its name as the key.
        self._watched = Watched(client, EVICTIONS, Eviction, namespaces, clock=clock, labels=names.EVICTION_RESPONDER)
        self._on_change = on_change
        self._respond = respond
        #: By UID of the pod.
        self._answers: dict[str, EvictionAnswer] = {}
        for reflector in self.reflectors:
            reflector.add_index(_TARGET, lambda item: (item.target.uid,) if item.target else ())
        self._watched.subscribe(self._on_event)

    @property
    def reflectors(self) -> Sequence[Reflector[Eviction]]:
        """What keeps it current."""
        return self._watched.reflectors

    @property
    def is_served(self) -> bool:
        """Tell whether the API server is known to have Evictions, and the operator may read them."""
        return all(reflector.synced.is_set() and reflector.served for reflector in self.reflectors)

    def get(self, key: Key) -> Eviction | None:
        """Find an Eviction by namespace and name."""
        return self._watched.get(key)

    def of(self, pods: Iterable[core.Pod]) -> dict[str, Eviction]:
        """Find Evictions of pods, by UID of the pod: of several the one that somebody wants now."""
        if not any(reflector.store for reflector in self.reflectors):
            return {}
        evictions = chain.from_iterable(map(self._of, (pod.metadata.uid for pod in pods)))
        by_want = sorted(evictions, key=lambda eviction: eviction.is_wanted)
        return {eviction.target.uid: eviction for eviction in by_want if eviction.target}

    def answer(self, pods: Iterable[str], answers: Mapping[str, EvictionAnswer]) -> None:
        """Note what is answered to the Evictions of these pods (UIDs); nothing to those that have no answer."""
        for uid in pods:
            before, answer = self._answers.pop(uid, None), answers.get(uid)
            if answer is not None:
                self._answers[uid] = answer
            if answer is not None and answer != before:
                self._respond_for(uid)

    def find_answer(self, uid: str) -> EvictionAnswer | None:
        """Find what is to be said of the Eviction of a pod; None where nobody has looked at its resource yet."""
        return self._answers.get(uid)

    def note_end(self, pod: core.Pod) -> None:
        """Note that a pod is gone: that is what is answered from now on."""
        self._answers.pop(pod.metadata.uid, None)
        self._respond_for(pod.metadata.uid)

    def _of(self, uid: str) -> Iterable[Eviction]:
        return chain.from_iterable(reflector.by_index(_TARGET, uid) for reflector in self.reflectors)

    def _respond_for(self, uid: str) -> None:
        for item in self._of(uid):
            self._respond(item.metadata.key)

    def _on_event(self, _kind: EventType, item: Eviction, _before: Eviction | None) -> None:
        if item.target is None:
            return
        if not any(self._of(item.target.uid)):
            self._answers.pop(item.target.uid, None)
        self._on_change((item.metadata.namespace, item.target.name))
        self._respond(item.metadata.key)
