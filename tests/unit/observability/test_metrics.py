import platform
import re

import pytest

import covey
from covey.observability import metrics, reference, scheduler_metrics
from covey.observability.families import REGISTRY, Families, Family
from metric_families import families


def test_labels_take_few_values(subtests: pytest.Subtests) -> None:
    for family in families().values():
        with subtests.test(family.name):
            bounded_where_they_are_made = family.name.startswith("covey_workload_")
            labels = set(family.labels)
            assert (
                bounded_where_they_are_made
                or not {"name", "namespace", "pod", "node", "uid"} & labels
                or labels == {"name"}
            )


def test_the_text() -> None:
    scheduler_metrics.GANG_ADMISSIONS.labels("minimum").inc()
    text = metrics.render().decode()
    version = re.escape(covey.__version__)
    assert re.search(
        rf'^covey_build_info{{python_version="{platform.python_version()}",version="{version}"}} 1', text, re.MULTILINE
    )
    assert re.search(r'^covey_gang_admissions_total{kind="minimum"} \d', text, re.MULTILINE)
    assert re.search(r"^process_resident_memory_bytes \d", text, re.MULTILINE)
    assert re.search(r"^process_cpu_seconds_total \d", text, re.MULTILINE)
    assert not re.search(r"^covey_\w+_created[ {]", text, re.MULTILINE)


def test_what_is_made_is_described_and_says_so() -> None:
    """Help text, type and labels of what a scrape shows are those of the description."""
    described = families()
    ours = [each for each in REGISTRY.collect() if not each.name.startswith(("process_", "python_"))]
    for each in ours:
        family = described.pop(each.name + ("_total" if each.type == "counter" else ""))
        assert (family.type, family.help) == (each.type, each.documentation)
        for sample in each.samples:
            assert set(sample.labels) - {"le"} == set(family.labels)
    collectors = {name for part in reference.PARTS for name in map(_name, part) if name in described}
    assert described.keys() == collectors, "what is not registered at import is made by a collector"
    assert all(described[name].type == "gauge" for name in collectors)


def _name(family: Family) -> str:
    return family.name


def test_values_that_are_shown_from_the_beginning_are_those_that_are_described() -> None:
    """Prometheus sees no increase in a series that begins with 1: the first of a kind would never be seen."""
    shown = {each.name + "_total": each.samples for each in REGISTRY.collect() if each.type == "counter"}
    begun = {
        name: family
        for name, family in families().items()
        if family.type == "counter"
        and family.labels
        and family.labels[0] in {"reason", "cause", "result", "step", "gate", "kind"}
    }
    by_their_leader = {"covey_gang_refusals_total"}
    for name, family in begun.items():
        if len(family.labels) > 1 or name in by_their_leader:
            continue
        values = {sample.labels[family.labels[0]] for sample in shown[name] if sample.name == name}
        assert values, name
        assert values <= set(re.findall(r"`(\w+)`", family.meaning)), name


@pytest.mark.parametrize(
    ("labels", "values"), [(("result",), ["good", "bad"]), (("verb", "result"), [("get", "good"), ("put", "bad")])]
)
def test_a_counter_begins_at_zero(labels: tuple[str, ...], values: list[str | tuple[str, ...]]) -> None:
    made = Families("Test").counter("covey_test_values_total", "Tests: `good`, `bad`.", *labels, values=values)
    shown = {tuple(sample.labels.values()): sample.value for metric in made.collect() for sample in metric.samples}
    REGISTRY.unregister(made)
    assert shown == {(each,) if isinstance(each, str) else each: 0 for each in values}
