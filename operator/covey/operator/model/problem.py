"""Problems that keep a resource from going on, in the words that its condition shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names
from covey.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, TooManyRequests

#: An object of a name that Covey needs belongs to somebody else.
REASON_NAME_TAKEN: Final = "NameTaken"
#: The API server refused something else than a pod.
REASON_REFUSED: Final = "RequestRefused"

#: Seconds before a problem that may pass is tried again: doubled from the first to the last.
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 60.0

#: How the API server begins what a webhook, and what a ValidatingAdmissionPolicy has to say.
_DENIED: Final = re.compile(r"^(admission webhook .* denied the request|.*ValidatingAdmissionPolicy .* denied request)")
_PREAMBLE: Final = re.compile(
    r"^(Pod in version \S+ cannot be handled as a Pod: |Pod \"[^\"]*\" is invalid: |pods \"[^\"]*\" is forbidden: )"
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, with the condition's reason and message; ``retry`` when it can pass without a change of the spec.

    ``by_person``: even so only if a person acts.
    """

    reason: str
    message: str
    retry: bool = False
    by_person: bool = False

    @property
    def may_pass(self) -> bool:
        """Tell whether it may pass without a person: a policy or a quota may change, what a template needs may come.

        What has a name that Covey needs, and levels that do not exist, are looked at again as well, but only because a
        person may have acted.
        """
        return (
            self.retry and not self.by_person and self.reason not in {REASON_NAME_TAKEN, names.REASON_INVALID_TOPOLOGY}
        )


class Blocked(Exception):  # noqa: N818 - named for what happened
    """Raised when an execution ended at a problem that a person has to know of."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def sum_up(problems: Sequence[Problem]) -> Problem | None:
    """All problems as one, with the reason of the first; it passes by itself where each of them does."""
    if not problems:
        return None
    message = "; ".join(dict.fromkeys(problem.message for problem in problems))
    return Problem(problems[0].reason, message, retry=all(problem.retry for problem in problems))


def is_of_quota(problem: Problem | None) -> bool:
    """Tell whether a ResourceQuota is in the way."""
    return problem is not None and problem.reason == names.REASON_QUOTA_EXCEEDED


def retry_delay(attempt: int) -> float:
    """Seconds to wait before the next attempt, after ``attempt`` attempts before this one."""
    # Beyond 2**64 no float is needed: the bound was reached long before.
    return min(_FIRST_RETRY * 2.0 ** min(attempt, 64), _LAST_RETRY)


def of_pod_refusal(error: ApiError) -> Problem | None:
    """The problem that the API server's refusal of a pod means; None when it says nothing about the pod.

    A webhook that cannot take part in a dry run says nothing. Quota, a missing PriorityClass or ServiceAccount and
    admission policies may change without the resource: they are tried again. A policy's refusal has the code that its
    author has chosen, often that of an invalid pod (422 for a ValidatingAdmissionPolicy); its words tell it apart.
    """
    if isinstance(error, Forbidden):
        if "exceeded quota" in error.message:
            message = f"{_message_of(error)}; raise the quota, or ask for less"
            return Problem(names.REASON_QUOTA_EXCEEDED, message, retry=True)
        ours = "cannot create resource" in error.message or "being terminated" in error.message
        return None if ours else Problem(names.REASON_TEMPLATE_REJECTED, _message_of(error), retry=True)
    if isinstance(error, BadRequest) and "does not support dry run" in error.message:
        return None
    if isinstance(error, BadRequest | Invalid):
        return Problem(names.REASON_TEMPLATE_REJECTED, _message_of(error), retry=bool(_DENIED.search(error.message)))
    return None


def is_denial(error: ApiError) -> bool:
    """Tell whether the API server, or a webhook that it asks, denies this write; others may go through.

    Not so a lost race, a server that is busy or going down, and credentials that are no good: those end the pass.
    """
    if "webhook" in error.message:
        is_race = isinstance(error, Conflict) and "denied the request" not in error.message
        return not is_race and not isinstance(error, TooManyRequests)
    return isinstance(error, BadRequest | Forbidden | Invalid)


def _message_of(error: ApiError) -> str:
    """The API server's words without the name of a pod that nobody has ever seen."""
    return _PREAMBLE.sub("", error.message)
