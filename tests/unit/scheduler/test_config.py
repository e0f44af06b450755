from __future__ import annotations

from typing import Any

import pytest
import yaml

from covey.scheduler.config import render
from covey.scheduler.settings import EndpointMode, SchedulerSettings


def test_the_configuration_is_the_protocols() -> None:
    found = yaml.safe_load(render(SchedulerSettings(bind_address="127.0.0.1:9999")))
    assert found == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": True, "resourceName": "covey-scheduler", "resourceNamespace": "covey-system"},
        "podMaxBackoffSeconds": 1,
        "profiles": [
            {
                "schedulerName": "covey-scheduler",
                "percentageOfNodesToScore": 100,
                "plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}},
            }
        ],
        "extenders": [
            {
                "urlPrefix": "http://127.0.0.1:9999/guard",
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                "nodeCacheCapable": True,
                "ignorable": False,
                "httpTimeout": "1s",
            },
            {
                "urlPrefix": "http://127.0.0.1:9999/barrier",
                "bindVerb": "bind",
                "ignorable": False,
                "httpTimeout": "3700s",
            },
        ],
    }


def test_a_sidecar_that_listens_everywhere_is_called_on_loopback() -> None:
    assert "http://127.0.0.1:8890/guard" in render(SchedulerSettings(bind_address=":8890"))
    assert "http://[::1]:8890/guard" in render(SchedulerSettings(bind_address="[::1]:8890"))


@pytest.mark.parametrize("tls", [{}, {"tls_cert_file": "crt", "tls_private_key_file": "key", "client_ca_file": "ca"}])
def test_a_service_is_called_by_its_name_with_tls(tls: dict[str, Any]) -> None:
    settings = SchedulerSettings(bind_address=":8443", endpoint_mode=EndpointMode.SERVICE, **tls)
    [guard, barrier] = yaml.safe_load(render(settings))["extenders"]
    assert guard["urlPrefix"] == "https://covey-scheduler-guard.covey-system.svc:8443/guard"
    assert barrier["urlPrefix"] == "https://covey-scheduler-extender.covey-system.svc:8443/barrier"
    for each in (guard, barrier):
        assert each["enableHTTPS"]
        assert not each["tlsConfig"]["insecure"]
        assert each["tlsConfig"]["caFile"]
        assert each["tlsConfig"]["certFile"]
        # The guard is called by another name than the certificate's.
        assert each["tlsConfig"]["serverName"] == "covey-scheduler-extender.covey-system.svc"


def test_a_users_scheduler_needs_nobody_for_pods_of_no_gang() -> None:
    """It passes the guard over, and asks the barrier for members alone; a dedicated one passes nothing over."""
    [guard, barrier] = yaml.safe_load(render(SchedulerSettings(endpoint_mode=EndpointMode.SERVICE)))["extenders"]
    assert (guard["ignorable"], barrier["ignorable"]) == (True, False)
    assert barrier["managedResources"] == [{"name": "scheduling.covey.dev/member", "ignoredByScheduler": True}]
    assert {"name": "nvidia.com/gpu"} in guard["managedResources"]


def test_the_guard_is_asked_for_the_devices_that_were_named() -> None:
    """kube-scheduler refuses a configuration in which a resource stands in two entries."""
    named = SchedulerSettings(endpoint_mode=EndpointMode.SERVICE, guarded_resources=("example.com/npu",))
    [guard, _] = yaml.safe_load(render(named))["extenders"]
    assert guard["managedResources"] == [{"name": "example.com/npu"}]
    assert (named.guards("example.com/npu"), named.guards("nvidia.com/gpu")) == (True, False)
    every = SchedulerSettings(endpoint_mode=EndpointMode.SERVICE, guarded_resources=("*",))
    [guard, _] = yaml.safe_load(render(every))["extenders"]
    assert "managedResources" not in guard
    assert every.guards("nvidia.com/gpu")
    assert SchedulerSettings().guards("example.com/npu"), "a kube-scheduler of Covey's own asks for all"
