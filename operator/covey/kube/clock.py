"""Time and chance as arguments, handed down from the process's ``run``, so that a test may set them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, which a test may set."""

    #: Seconds of any beginning, at the rate of the event loop's.
    monotonic: Callable[[], float] = time.monotonic
    #: Seconds since the epoch; for records and for what other machines wrote.
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    #: Uniform in [0, 1); it spreads load and keeps no secret.
    random: Callable[[], float] = random.random


SYSTEM: Final = Clock()
