"""``Ready`` and ``Stalled``: what the other conditions come to, in the two words by which kstatus judges any object.

kstatus (``pkg/kstatus`` of cli-utils, with which Flux and ``helm --wait`` look) reads of a custom resource: another
``status.observedGeneration`` than the object's, InProgress; ``Stalled`` True, Failed; ``Ready`` True, Current;
``Ready`` False or Unknown, InProgress; none of them, Current. So ``Ready`` is always there, ``Stalled`` only while it
is True, and ``Reconciling`` never: it would say once more what ``Ready`` False says.

Flux gives up at once on what has Failed. So that is only what nothing but a person can mend; whatever Covey tries again
or waits for, room above all, is InProgress. ``covey.api.reasons`` knows which reason is of which sort.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from covey.api import constants as names

Truth = Literal["True", "False", "Unknown"]


#: Status, reason, message.
Finding = tuple[Truth, str, str]


REASON_COMPLETE: Final = "Complete"


#: What is said first of a resource that is not Ready. Progressing has the last word: it is not Complete then.
_FIRST: Final = (names.ADMITTED, names.AVAILABLE)


def find_ready(findings: Mapping[str, Finding], *, lives: bool) -> Finding:
    """Compute the condition ``Ready``.

    Args:
        findings: the other conditions, by type.
        lives: there are pods that nobody has deleted; it only matters where none are wanted.
    """
    if names.STALLED in findings:
        return "False", *findings[names.STALLED][1:]
    status, reason, message = findings[names.PROGRESSING]
    if (status, reason) == ("True", REASON_COMPLETE):
        return "True", names.READY, message
    if reason == names.REASON_SUSPENDED:
        return ("False", reason, "suspended: its pods are going") if lives else ("True", reason, message)
    worse = next((findings[kind] for kind in _FIRST if findings[kind][0] != "True"), None)
    return "False", *(worse[1:] if worse is not None else (reason, message))
