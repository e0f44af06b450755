"""What must hold in every story, whatever it is about: the soak's laws, on the record.

The soak excuses what follows from something that happened a moment ago, by the clock, since others may not have seen it
yet. Here a rest is what ends a moment: by then everybody has seen everything.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from soak.checker import Checker
from soak.facts import Owner
from soak.invariants import Violation
from stage.record import Event

#: Kinds that the laws are about.
JUDGED: Final = ("Node", "DisaggregatedInference", "RoleScaler", "CompositePodGroup", "PodGroup", "Pod")
#: Seconds of the laws' own time from one rest to the next: longer than any excuse.
_EPOCH: Final = 100.0


def find_violations(
    events: Collection[Event], condemned: Collection[tuple[str, str]], touched: Collection[str]
) -> list[Violation]:
    """Judge a history.

    Args:
        events: of the kinds that are judged, in the order of the API server.
        condemned: namespace and name of the pods that the operator has asked to delete.
        touched: UIDs of pods that the story itself has done something to.
    """
    checker = Checker()
    checker.world.condemned |= set(condemned)
    checker.world.touched |= set(touched)
    rests = 0
    for event in events:
        while rests < event.rests:
            # Time passes at rest: what lasts is looked at in its middle and at its end.
            checker.tick((rests + 0.5) * _EPOCH)
            rests += 1
            checker.tick(rests * _EPOCH)
        if event.kind == "Node" and event.change == "DELETED":
            # Whatever becomes of its pods, its deletion has done it.
            checker.world.touched |= checker.world.on_node.get(event.object["metadata"]["name"], {}).keys()
        if event.kind == "RoleScaler" and (
            name := event.object["metadata"].get("labels", {}).get("covey.dev/inference")
        ):
            # Whoever scales from outside asks for what then comes and goes.
            checker.world.rests.stir(Owner(event.object["metadata"]["namespace"], name))
        checker.take(event.kind, event.change, event.object, rests * _EPOCH)
    return checker.violations
