"""The clock that stands still while something hides what happens."""

from __future__ import annotations

from soak.quiet import Quiet


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_stands_still_and_goes_on_a_little_later() -> None:
    clock = Clock()
    quiet = Quiet(clock, settling=2.0)
    clock.now += 5
    assert quiet.now() == 5
    quiet.disturb("etcd")
    clock.now += 5
    assert quiet.now() == 5
    quiet.settle("etcd")
    clock.now += 1
    assert quiet.now() == 5
    clock.now += 4
    assert quiet.now() == 8


def test_until_the_last_disturbance_has_ended() -> None:
    clock = Clock()
    quiet = Quiet(clock, settling=1.0)
    for name in ("etcd", "operator"):
        quiet.disturb(name)
    quiet.settle("etcd")
    clock.now += 10
    assert (quiet.now(), quiet.disturbed) == (0, {"operator"})
    quiet.settle("operator")
    quiet.settle("never began")
    clock.now += 3
    assert quiet.now() == 2


def test_a_disturbance_while_it_has_not_gone_on_yet() -> None:
    clock = Clock()
    quiet = Quiet(clock, settling=4.0)
    for _ in range(3):
        quiet.disturb("api")
        quiet.settle("api")
        clock.now += 3
    assert quiet.now() == 0
