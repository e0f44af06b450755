"""The change of a vector on the command line, and the judgement of it."""

import pytest

from covey.cli.commands.exchange import change_targets, describe_judgement, parse_change
from covey.manifests.errors import InputError

NOW = {"prefill": 6, "decode": 2}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["prefill=-1", "decode=+1"], {"prefill": 5, "decode": 3}),
        (["decode=4"], {"prefill": 6, "decode": 4}),
        (["prefill=0"], {"prefill": 0, "decode": 2}),
    ],
)
def test_changes_are_of_what_is_asked_for(words: list[str], expected: dict[str, int]) -> None:
    assert change_targets(NOW, [parse_change(each) for each in words]) == expected


@pytest.mark.parametrize("words", ["prefill", "prefill=", "=1", "prefill=one", "router=1", "decode=-3"])
def test_what_is_no_change_is_refused(words: str) -> None:
    with pytest.raises(InputError):
        change_targets(NOW, [parse_change(words)])


def test_a_refusal_says_what_is_in_force() -> None:
    body = {"spec": {"targets": NOW}, "status": {"committed": {"prefill": 4, "decode": 3}}}
    told = {"reason": "NoPlan", "message": "decode=2,prefill=6 does not fit: no room for 2 prefill"}
    assert describe_judgement(body, told).splitlines() == [
        "decode=2,prefill=6: NoPlan: decode=2,prefill=6 does not fit: no room for 2 prefill",
        "in force: decode=3,prefill=4",
    ]
