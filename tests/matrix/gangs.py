"""Scenarios of gangs: what is placed together, or not at all."""

from __future__ import annotations

from typing import Final

from cluster.serving import workers
from localcluster import eventually
from matrix.bench import Bench
from matrix.columns import EXTENDER, EXTENDER_OLDEST, KUBERNETES_1_37, VOLCANO
from matrix.outcome import differs
from matrix.rows import NOTHING, Rows, busy

ROWS: Final = Rows()
scenario = ROWS.scenario


@scenario("Gap 1: a minimum counts replicas, not pods")
def minimum_counts_replicas(bench: Bench) -> None:
    """Kthena's published example: minimum 2 of 2 and 1 of 2, two pods each, a pod to a node."""
    bench.nodes(5)
    bench.create(
        workers("prefill", replicas=2, size=2, minReplicas=2), workers("decode", replicas=2, size=2, minReplicas=1)
    )
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=2, decode=1)
    bench.nodes(6)
    bench.expect(prefill=2, decode=2)


@scenario("Gap 2: roles start together, replicas of one pod")
def roles_together_single(bench: Bench) -> None:
    """Four prefill pods would take every node before decode has its minimum."""
    bench.nodes(1)
    bench.create(workers("prefill", replicas=4, minReplicas=1), workers("decode", replicas=2, minReplicas=1))
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1)


@scenario("Gap 2: roles start together, replicas of several pods")
def roles_together_multi(bench: Bench) -> None:
    """Three nodes hold a replica of either role, and no gang."""
    bench.nodes(3)
    bench.create(
        workers("prefill", replicas=3, size=2, minReplicas=1), workers("decode", replicas=2, size=2, minReplicas=1)
    )
    bench.expect()
    bench.nodes(1)
    bench.expect(prefill=1, decode=1)


@scenario("nothing partial: of two gangs that exclude each other one starts")
def one_of_two(bench: Bench) -> None:
    """Each needs four of six nodes; the other one starts whole when the first is gone."""
    bench.nodes(6)
    both = ("first", "second")
    for name in both:
        bench.create(workers("prefill", size=2), workers("decode", size=2), name=name)
    one = {"prefill": 1, "decode": 1}
    # Whoever has not begun yet is at rest, too.
    eventually(lambda: any(bench.whole(name) == one for name in both), 60, "one of them has started")
    bench.rest()
    started = [name for name in both if bench.whole(name) == one]
    assert len(started) == 1, f"{started} have started"
    [winner] = started
    [loser] = set(both) - {winner}
    bench.expect_all({(winner, 0): one, (loser, 0): {}})
    bench.remove("DisaggregatedInference", winner)
    bench.expect(loser, **one)


@scenario("minimums first: no unit grows before every unit has its minimum")
def minimums_first(bench: Bench) -> None:
    """Two units that want six pods each, and four nodes."""
    bench.nodes(4)
    bench.create(
        workers("prefill", replicas=4, minReplicas=1), workers("decode", replicas=2, minReplicas=1), replicas=2
    )
    one = {"prefill": 1, "decode": 1}
    bench.expect_all({("llm", 0): one, ("llm", 1): one})


@scenario(
    "a gang that fits in one way only",
    {KUBERNETES_1_37: differs(NOTHING), VOLCANO: differs(NOTHING)},
    # Groups that stand side by side are tried in any order, so it may fit by luck.
    only=(EXTENDER, EXTENDER_OLDEST, KUBERNETES_1_37, VOLCANO),
)
def one_way_only(bench: Bench) -> None:
    """Five replicas of 2, 3, 2, 3 and 2 pods, each in one rack, fill two racks of six as 2 + 2 + 2 and 3 + 3."""
    bench.nodes(6, racks=2)
    sizes = {"a": 2, "b": 3, "c": 2, "d": 3, "e": 2}
    bench.create(*(busy(name, size) for name, size in sizes.items()))
    bench.expect(**dict.fromkeys(sizes, 1))
