"""Work beside a block of code."""

import pytest

from localcluster import Background


class Counting(Background):
    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def _run(self) -> None:
        while not self.ended.wait(0):
            self.rounds += 1
        self.rounds = -1


def test_it_has_ended_when_the_block_has() -> None:
    with Counting() as counting:
        assert not counting.ended.is_set()
    assert counting.rounds == -1


def test_also_when_the_block_fails() -> None:
    counting = Counting()
    with pytest.raises(ValueError, match="the block"), counting:
        raise ValueError("the block")
    assert counting.rounds == -1
