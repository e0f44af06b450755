"""What the log says of a pass: what it writes, and nothing where it writes nothing."""

from __future__ import annotations

from covey.operator.model.actions import Actions, Annotate


def test_pass_that_only_notes_something_for_itself_is_not_logged() -> None:
    assert Actions().counts() == {}
    assert Actions(annotate=(Annotate("v1/Pod", "llm-0", "uid", {"a": "b"}),)).counts() == {}


def test_pass_is_logged_by_what_it_writes_alone() -> None:
    assert Actions(store={"kind": "ControllerRevision"}, apply=(({}, {}), ({},))).counts() == {"store": 1, "apply": 3}
