import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.api import core
from covey.kube.errors import Undecodable
from covey.kube.watch import LineBuffer, decode, decode_event


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_lines_do_not_depend_on_where_chunks_end(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    buffer = LineBuffer()
    chunks = [stream[start:end] for start, end in itertools.pairwise(edges)]
    assert [line for chunk in chunks for line in buffer.feed(chunk)] == lines


def event(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode()


def test_of_a_bookmark_only_the_version_is_read() -> None:
    # As kube-apiserver sends it: required lists are null.
    line = event(
        "BOOKMARK",
        {
            "kind": "Pod",
            "metadata": {"resourceVersion": "12746", "creationTimestamp": None},
            "spec": {"containers": None},
        },
    )
    kind, pod = decode_event(line, core.Pod)
    assert (kind, pod) == ("BOOKMARK", core.Pod(metadata=core.Meta(resource_version="12746")))
    assert decode_event(line, dict[str, Any])[1] == {"metadata": {"resourceVersion": "12746"}}


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": {"metadata": 1}}']
)
def test_an_event_that_cannot_be_read(line: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_event(line, core.Pod)


def test_what_cannot_be_decoded_names_the_type() -> None:
    with pytest.raises(Undecodable, match="Pod"):
        decode(b'{"metadata": []}', core.Pod)
