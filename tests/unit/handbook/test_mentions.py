"""Fields and metrics that sentences mention exist under these names."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from covey.api.crds import KINDS
from covey.api.schema import structural
from handbook.pages import pages, read
from metric_families import families, known_series

_CODE = re.compile(r"`(?P<text>[^`\n]+)`")
#: A path of fields that begins as one of ours does.
_FIELD = re.compile(
    r"(?<![\w./-])(?:(?:spec|status|restart|backoff|update|rollout|gang|disruption|scaling|headroom|network(?!\.topology\.nvidia)|compat)\."
    r"|(?:roles|unitStatuses)\[\]\.)[A-Za-z.[\]]+"
)
_METRIC = re.compile(r"\bcovey_[a-z_]+\*?")
#: Fields of pods.
_PODS = ("spec.nodeName", "spec.schedulingGates", "spec.workloadRef", "spec.containers")
#: Pages that are about what was, or about other projects' fields.
_OTHERS = (
    "CHANGELOG.md",
    "docs/decisions/",
    "docs/how-to/migrate.md",
    "docs/how-to/jobs.md",
    "docs/how-to/migrate.md",
)

PAGES = [page for page in map(read, pages()) if not page.path.startswith(_OTHERS)]


def _paths(schema: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every field, as any of its ends: ``spec.gang.timeoutSeconds``, ``gang.timeoutSeconds``, ``timeoutSeconds``."""
    for name, below in schema.get("properties", {}).items():
        whole = (*path, name)
        yield from (".".join(whole[start:]) for start in range(len(whole)))
        yield from _paths(below, whole)
    if "items" in schema:
        yield from _paths(schema["items"], path)


FIELDS = {path for kind in KINDS for path in _paths(structural(kind.model))}


def unknown_fields(text: str) -> list[str]:
    """Paths in code of a text that no kind has."""
    found = [each[0].rstrip(".") for code in _CODE.finditer(text) for each in _FIELD.finditer(code["text"])]
    return [each for each in found if each.replace("[]", "") not in FIELDS and not each.startswith(_PODS)]


def unknown_metrics(text: str) -> list[str]:
    """Names in a text that no metric has; a star stands for any end."""
    known = known_series() | families().keys()
    found = [each[0] for each in _METRIC.finditer(text)]
    return [
        each
        for each in found
        if each not in known and not (each.endswith("*") and any(name.startswith(each[:-1]) for name in known))
    ]


def test_fields_in_sentences_exist(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            assert not unknown_fields(page.prose)


def test_metrics_exist(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            assert not unknown_metrics("\n".join([page.prose, *(block.text for block in page.blocks)]))


def test_the_check_finds_what_is_wrong() -> None:
    right = "`spec.gang.timeoutSeconds: 300`, `roles[].maxFeasible`, `update.maxSurge`, `spec.nodeName`, `values.yaml`"
    assert not unknown_fields(right)
    assert unknown_fields("`restart.startDeadlineSeconds` and `spec.roles[].minimum`") == [
        "restart.startDeadlineSeconds",
        "spec.roles[].minimum",
    ]
    assert not unknown_metrics('`covey_workload_*`, `covey_gangs_waiting{reason="Waiting"}`')
    assert unknown_metrics("`covey_gangs`, `covey_nothing_*`") == ["covey_gangs", "covey_nothing_*"]
