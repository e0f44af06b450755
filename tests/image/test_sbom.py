"""The bill of materials says what is in the image: by the schema, complete, with versions, hashes and licences."""

import json
import re
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from covey import __version__
from imaging import ROOT, Image, ImageError
from sbom import describe


@pytest.fixture(scope="module")
def bill(image: Image) -> dict[str, Any]:
    return describe(image)


def test_it_follows_the_schema(bill: dict[str, Any]) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    broken = {**bill, "components": [{"name": "no type"}]}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(broken)) is not None


def test_every_requirement_is_in_it_with_version_hash_and_licence(bill: dict[str, Any]) -> None:
    text = (ROOT / "requirements" / "run.txt").read_text()
    pins = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    components = {re.sub(r"[-_.]+", "-", each["name"]).lower(): each for each in bill["components"]}
    assert {name: each["version"] for name, each in components.items()} == pins
    for name, each in components.items():
        assert each["purl"] == f"pkg:pypi/{name}@{pins[name]}"
        assert each["licenses"], name
        assert f"sha256:{each['hashes'][0]['content']}" in text


def test_it_is_covey_s(bill: dict[str, Any]) -> None:
    ours = bill["metadata"]["component"]
    assert (ours["name"], ours["version"], ours["type"]) == ("covey", __version__, "application")
    assert ours["licenses"][0]["license"]["id"] == "Apache-2.0"


def test_what_cannot_be_read_is_an_error(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "program", lambda *_: image.root / "no-such-python")
    with pytest.raises(ImageError, match="cyclonedx-py"):
        describe(image)
