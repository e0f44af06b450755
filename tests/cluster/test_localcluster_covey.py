"""Covey's own processes in the local cluster: the fixtures that other tests share."""

import urllib.request
from typing import Any

import pytest

from localcluster import Cluster, ProcessError, request

pytestmark = pytest.mark.slow  # the fixtures themselves, each process started several times


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def test_both_processes_serve_metrics_and_health_on_ports_of_their_own(covey: Any) -> None:
    served = {
        covey.operator.metrics_url,
        covey.operator.health_url,
        covey.scheduler.metrics_url,
        covey.scheduler.health_url,
    }
    assert len(served) == 4
    for process in (covey.operator, covey.scheduler):
        get(process.metrics_url)
        get(f"{process.health_url}/healthz")
        get(f"{process.health_url}/readyz")


def test_processes_run_under_their_own_accounts(cluster: Cluster, covey: Any) -> None:
    assert covey.operator.alive
    for name in ("covey-operator", "covey-scheduler"):
        assert cluster.api("GET", f"/api/v1/namespaces/covey-system/serviceaccounts/{name}")
        with cluster.service_account_client("covey-system", name) as account:
            review = {"spec": {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}}
            answer = request(account, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            assert not answer["status"]["allowed"]


def test_a_second_process_of_one_name_is_refused(cluster: Cluster, covey: Any) -> None:
    with pytest.raises(ProcessError, match="covey-operator runs already"):
        cluster.start_covey("operator")
    assert cluster.processes["covey-operator"] is covey.operator


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_test_that_kills_finds_all_processes_running(cluster: Cluster, covey_to_kill: Any, attempt: int) -> None:
    processes = (covey_to_kill.operator, covey_to_kill.scheduler, covey_to_kill.kube_scheduler)
    assert all(process.ready for process in processes)
    assert "covey-scheduler-2" not in cluster.processes

    cluster.start_covey("scheduler", name="covey-scheduler-2")
    for process in processes[attempt % 2 :]:
        process.kill()
    if attempt == 1:
        covey_to_kill.operator.pause()
