"""Parts of a request that a unit can serve, where a router's controller switches replicas between them at run time.

Replicas of a role that serves ``Both`` are one or the other by the label ``llm-d.ai/role``, which that controller owns.
So a minimum of each part is counted and reported; nothing here writes a label or holds a replica back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Serves
from covey.compile import Layout
from covey.model import podstate
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Remark

REASON_LACKS_CAPABILITY: Final = "LacksCapability"
_PARTS: Final = ("prefill", "decode")


def find_lacking(spec: DisaggregatedInferenceSpec, layout: Layout, observed: Observed) -> Iterator[Remark]:
    """Tell of a part that fewer Ready replicas of a unit serve than there have to be.

    At least as many as ``minReplicas`` of the roles that serve this part alone, and one in any case.

    Args:
        spec: what is kept up.
        layout: the replicas that there shall be.
        observed: the snapshot.
    """
    alone = {
        role.name: role.capability.lower() for role in spec.roles if role.capability in {Serves.PREFILL, Serves.DECODE}
    }
    both = [role.name for role in spec.roles if role.capability is Serves.BOTH]
    least = {
        part: max(1, sum(role.min_replicas for role in spec.roles if alone.get(role.name) == part)) for part in _PARTS
    }
    serve: dict[int, Counter[str]] = {unit: Counter() for unit in layout.units}
    for slot, pod in observed.current.items():
        if slot.index == 0 and slot.unit in serve and podstate.is_ready(pod) and not podstate.is_draining(pod):
            label = pod.metadata.label(names.LABEL_LLMD_ROLE) or "" if slot.role in both else alone.get(slot.role, "")
            # Without the label, or with one that says so, it is whatever a request asks for.
            serve[slot.unit].update([label] if label in _PARTS else _PARTS if slot.role in both else ())
    for unit, counts in sorted(serve.items()):
        short = [part for part in _PARTS if counts[part] < least[part]]
        # A unit that has nobody Ready has not begun, or says so by ``Available``.
        if short and counts:
            counted = ", ".join(f"{counts[part]} of {least[part]} {part}" for part in _PARTS)
            message = (
                f"unit {unit} has {counted} Ready: {names.LABEL_LLMD_ROLE} says so, which others set and Covey leaves"
            )
            yield Remark(names.CAPABILITY_LACKING, REASON_LACKS_CAPABILITY, message)
            return
