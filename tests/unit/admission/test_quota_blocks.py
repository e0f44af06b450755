"""What charges leave of a queue's nominal, reckoned by blocks of charges."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from covey.admission import quota
from covey.admission.quota import Ledger, Pool
from unit.admission.test_quota import GPU, POOL, charge, policies, queue

CPU = Pool((), "cpu")


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 2), st.integers(0, 4), st.integers(0, 4)), max_size=40),
    st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_what_is_left_is_reckoned_by_blocks_as_one_by_one(
    steps: list[tuple[int, int, int, int]], nominal: tuple[int, int]
) -> None:
    """Units come, change and go; blocks are of one and two charges here, so that all that is skipped is tried."""
    stated = [{"name": name, "nominal": amount} for name, amount in zip((GPU, "cpu"), nominal, strict=True)]
    with mock.patch.object(quota, "_MOST", 2):
        ledger = Ledger(policies(queue("a", flavors=[{"resources": stated}])))
        for number, replica, gpu, cpu in steps:
            made = charge("a", f"u{number}", 0, replica=None if replica < 0 else replica, age=number)
            amounts = tuple((pool, amount) for pool, amount in ((POOL, gpu), (CPU, 1000 * cpu)) if amount)
            kept = tuple(each for each in ledger.of(made.unit) if each.member != made.member)
            ledger.enter(made.unit, (*kept, replace(made, amounts=amounts)) if amounts else kept)
            ledger = ledger.copy()
            split = ledger.split("a")
            for minimums in (True, False):
                inside = [each for each, over in split.items() if not over and (each.member is None or not minimums)]
                used = Counter({POOL: 0, CPU: 0})
                for each in inside:
                    used.update(dict(each.amounts))
                left = {POOL: nominal[0] - used[POOL], CPU: 1000 * nominal[1] - used[CPU]}
                assert ledger.nominal_left("a", minimums=minimums) == left
            for each, over in split.items():
                assert each.member is not None or ledger.is_within_nominal(each) == (not over)
