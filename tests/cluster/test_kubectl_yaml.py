"""YAML that is read and printed here, and what the real kubectl reads of it. No control plane is asked."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.api.yaml_dialect import dump, load
from localcluster import binaries
from unit.api.test_yaml_dialect import KEYS, READ

#: Texts that come near numbers, words and times; and any others that need no quotes.
PLAIN = st.one_of(
    st.sampled_from([*READ, *KEYS]),
    st.text("0123456789_.:eE+-xXoObB", min_size=1, max_size=9),
    st.text("ynYNoOefalsrtuFT~.INnaN", min_size=1, max_size=5),
    st.from_regex(r"[-+]?(0[xXoObB]?)?[0-9a-f_]{1,20}(\.[0-9_]*)?([eE][-+]?[0-9_]{1,4})?", fullmatch=True),
    st.from_regex(r"[0-9]{1,4}[-:][0-9]{1,2}[-:][0-9]{1,2}([tT ][0-9:.]{1,8}Z?)?", fullmatch=True),
)


@pytest.fixture(scope="module")
def kubectl() -> Path:
    return binaries.ensure()["kubectl"]


def asked(kubectl: Path, values: str) -> Any:
    """The value of a key in an object, as kubectl reads it; None where it cannot."""
    text = f"apiVersion: test.covey.dev/v1\nkind: Test\nmetadata: {{name: test}}\nvalues:\n{values}"
    command = [kubectl, "label", "--local", "-f", "-", "-o", "json", "read=yes"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False, env={"HOME": "/nonexistent"})
    return None if done.returncode else json.loads(done.stdout, parse_int=_number)["values"]


def _number(text: str) -> float:
    """A number of more than 64 bits is no integer to Kubernetes, whether or not it has a point."""
    return int(text) if abs(int(text)) < 2**63 else float(text)


def ours(values: str) -> Any:
    """The same as it is read here."""
    try:
        (document,) = load(f"values:\n{values}")
    except (yaml.YAMLError, ValueError):
        return None
    return document["values"]


@given(st.lists(PLAIN, min_size=1, max_size=30, unique=True))
@settings(settings.get_profile("storm"))
def test_plain_scalars_and_keys_are_read_as_kubectl_reads_them(kubectl: Path, texts: list[str]) -> None:
    for form in ("- {}\n", "- {}: v\n"):
        readable = [text for text in texts if ours(form.format(text)) is not None]
        together = "".join(form.format(text) for text in readable) or "- v\n"
        assert ours(together) == asked(kubectl, together)
        for text in set(texts) - set(readable):
            assert asked(kubectl, form.format(text)) is None, text


@given(st.lists(st.one_of(PLAIN, st.text()), min_size=1, max_size=30, unique=True))
@settings(settings.get_profile("storm"))
def test_what_is_printed_is_read_by_kubectl_as_it_was(kubectl: Path, texts: list[str]) -> None:
    value = {"list": texts, "keys": {text: {"nested": text} for text in texts}}
    printed = dump([{"values": value}]).partition("\n")[2]
    assert asked(kubectl, printed) == value
