"""What counts as the output that a page shows."""

import pytest

from docs.output import agrees, difference

TABLE = "NAME    READY   AGE\nllama   4/4     3s\n"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (TABLE, TABLE),
        (TABLE, "NAME    READY   AGE\nllama   4/4     2m10s\n"),
        (TABLE, "NAME READY AGE\nllama 4/4 3s"),
        ("NAME   READY   AGE\n…", TABLE),
        ("…\nllama   …     3s", TABLE),
        ("…", ""),
        ("covey-operator-fb7b7875d-5zdg2 Running", "covey-operator-7f8957fddb-lwfsq Running"),
        ("hello-0-decode-0-0-28e163  node-0-0-0", "hello-0-decode-0-0-d4e5f6  node-0-0-0"),
        ("│ node-0 DDDDDDDD D0 │ │ node-1", "│ node-0 DDDDDDDD D1 │ │ node-1"),
        ("since 2026-01-02T03:04:05Z", "since 2027-01-02T03:04:05.123456Z"),
        ("a (x2) [b] *c*", "a (x2) [b] *c*"),
    ],
)
def test_these_agree(shown: str, printed: str) -> None:
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (TABLE, "NAME    READY   AGE\nllama   3/4     3s\n"),
        (TABLE, TABLE + "qwen    1/1     3s\n"),
        ("", "an error"),
        ("hello-0-decode-0-0-28e163  node-0-0-0", "hello-0-decode-0-0-28e163  node-0-0-1"),
        ("a.c", "abc"),
        ("│ node-0 DDDDDDDD D0 │", "│ node-0 PPPPPPPP P0 │"),
        ("NAME\n…\nqwen", TABLE),
    ],
)
def test_these_do_not(shown: str, printed: str) -> None:
    assert not agrees(shown, printed)
    assert difference(shown, printed)
