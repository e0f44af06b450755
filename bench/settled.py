"""Lets the garbage collector of a benchmark be as that of the scheduler process is once the first lists have come."""

import gc

from covey.kube.process import settle_memory


def settle() -> None:
    """What is there now stays, and is not walked again and again; what was there before and is gone, is."""
    gc.unfreeze()
    settle_memory(10_000, 5, 5_000)
