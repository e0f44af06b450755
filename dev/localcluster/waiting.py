"""Wait for something that happens elsewhere, with a limit and a message that says what was missing."""

import time
from collections.abc import Callable
from typing import TypeVar

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from localcluster.api import sentence_of

Value = TypeVar("Value")
#: Seconds between two questions: few at first, more and more the longer it takes, so that those who wait long cost little.
_FIRST, _GROWTH, _LONGEST = 0.02, 1.2, 0.2
#: Answers of the API server that may be others a moment later: none, not there, changed in between, too busy.
_PASSING = frozenset({0, 404, 409, 429})


class NotReachedError(AssertionError):
    """Something did not become so in time."""


def eventually(predicate: Callable[[], Value], timeout: float = 60.0, describe: str | Callable[[], str] = "") -> Value:
    """Ask until the answer is true, and return it.

    Args:
        predicate: What is asked. A failed ``assert`` in it, a field that is not written yet (``LookupError``), an
            object that is not there, and an API server that is busy, has trouble of its own or breaks a connection
            count as "not yet".
        timeout: Seconds after which it is given up.
        describe: What is waited for, or what tells how things stand, for the message.

    Raises:
        NotReachedError: when the time is over; the last answer is in its message.
        ApiException: when the API server refuses for good.
    """
    deadline, pause = time.monotonic() + timeout, _FIRST
    while True:
        try:
            if answer := predicate():
                return answer
            last = f"the last answer was {answer!r}"
        except (AssertionError, ApiException, HTTPError) as error:
            if isinstance(error, ApiException) and error.status not in _PASSING and error.status < 500:
                raise
            last = sentence_of(error)
        except LookupError as error:
            last = repr(error)
        if time.monotonic() > deadline:
            what = describe() if callable(describe) else describe
            raise NotReachedError(f"not so after {timeout:g} s: {what or predicate.__name__}; {last}")
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST)
