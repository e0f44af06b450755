import platform
import re

import pytest
from prometheus_client.metrics import MetricWrapperBase

import covey
from covey.observability import metrics

OURS = {name: value for name, value in vars(metrics).items() if isinstance(value, MetricWrapperBase)}


def test_the_contract_with_dashboards() -> None:
    names = {value._name + ("_total" if value._type == "counter" else "") for value in OURS.values()}
    assert names == {
        "covey_reconcile_total",
        "covey_reconcile_duration_seconds",
        "covey_plan_duration_seconds",
        "covey_gang_admissions_total",
        "covey_gang_refusals_total",
        "covey_gangs_waiting",
        "covey_barrier_wait_seconds",
        "covey_barrier_held",
        "covey_extender_requests_total",
        "covey_extender_request_duration_seconds",
        "covey_extender_certificate_reloads_total",
        "covey_extender_certificate_expiration_timestamp_seconds",
        "covey_kube_requests_total",
        "covey_workqueue_depth",
        "covey_pods_released_total",
        "covey_events_dropped_total",
        "covey_build_info",
        "leader_election_master_status",
    }


@pytest.mark.parametrize("metric", OURS.values(), ids=list(OURS))
def test_labels_take_few_values(metric: MetricWrapperBase) -> None:
    assert not {"name", "namespace", "pod", "node", "uid"} & set(metric._labelnames) or metric._labelnames == ("name",)
    assert metric._documentation.endswith(".")


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
    assert "_created" not in text
