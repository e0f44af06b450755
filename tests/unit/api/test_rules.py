"""The CRD's rules in Python: they refuse what a real API server refuses, and nothing else."""

from typing import Any

import pytest
from pydantic import ValidationError

from builders.manifests import Object, changed, inference
from cluster.test_api_rules import BAD_INFERENCES, GOOD
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.rules import broken_rules

#: Those of the name, which no spec has.
_BAD = [edits for edits, path, _ in BAD_INFERENCES if path.startswith("spec")]
_GOOD = [edits for manifest, edits in GOOD if manifest["kind"] == "DisaggregatedInference"]


def is_refused(edits: dict[str, Any]) -> bool:
    made: Object = changed(inference(), edits)
    try:
        spec = DisaggregatedInferenceSpec.model_validate(made["spec"])
    except ValidationError:
        return True
    return bool(list(broken_rules(spec)))


@pytest.mark.parametrize("edits", _BAD, ids=lambda edits: next(iter(edits)))
def test_what_the_api_server_refuses_is_refused(edits: dict[str, Any]) -> None:
    assert is_refused(edits)


@pytest.mark.parametrize("edits", _GOOD, ids=lambda edits: next(iter(edits), "as it is"))
def test_what_the_api_server_takes_is_taken(edits: dict[str, Any]) -> None:
    assert not is_refused(edits)
