from __future__ import annotations

import yaml

from covey.scheduler.config import render
from covey.scheduler.settings import EndpointMode, Settings, Tls


def test_the_configuration_is_the_protocols() -> None:
    found = yaml.safe_load(render(Settings(bind_address="127.0.0.1:9999")))
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
    assert "http://127.0.0.1:8890/guard" in render(Settings(bind_address=":8890"))
    assert "http://[::1]:8890/guard" in render(Settings(bind_address="[::1]:8890"))


def test_a_service_is_called_by_its_name_with_tls_when_there_is_a_certificate() -> None:
    settings = Settings(bind_address=":8443", endpoint_mode=EndpointMode.SERVICE, tls=Tls("crt", "key", "ca"))
    [guard, barrier] = yaml.safe_load(render(settings))["extenders"]
    for each in (guard, barrier):
        assert each["urlPrefix"].startswith("https://covey-scheduler-extender.covey-system.svc:8443/")
        assert each["enableHTTPS"]
        assert not each["tlsConfig"]["insecure"]
        assert each["tlsConfig"]["caFile"]
        assert each["tlsConfig"]["certFile"]
