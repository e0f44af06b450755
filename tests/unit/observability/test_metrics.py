import platform
import re

import pytest

import covey
from covey.observability import metrics
from metric_families import Family, families


@pytest.mark.parametrize("family", families().values(), ids=list(families()))
def test_labels_take_few_values(family: Family) -> None:
    bounded_where_they_are_made = family.name.startswith("covey_workload_")
    labels = set(family.labels)
    assert bounded_where_they_are_made or not {"name", "namespace", "pod", "node", "uid"} & labels or labels == {"name"}


def test_the_text() -> None:
    metrics.GANG_ADMISSIONS.labels("minimum").inc()
    text = metrics.render().decode()
    version = re.escape(covey.__version__)
    assert re.search(
        rf'^covey_build_info{{python_version="{platform.python_version()}",version="{version}"}} 1', text, re.MULTILINE
    )
    assert re.search(r'^covey_gang_admissions_total{kind="minimum"} \d', text, re.MULTILINE)
    assert re.search(r"^process_resident_memory_bytes \d", text, re.MULTILINE)
    assert re.search(r"^process_cpu_seconds_total \d", text, re.MULTILINE)
    assert not re.search(r"^covey_\w+_created[ {]", text, re.MULTILINE)
