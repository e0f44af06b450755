"""Quantities and requests: what kube-scheduler would count, to the last unit."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from builders import pods
from covey.api import core
from covey.placement.cluster.resources import amount, parse_quantity, pod_requests, text


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1),
        (2, 2),
        (0.5, Fraction(1, 2)),
        ("100m", Fraction(1, 10)),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("2k", 2000),
        ("1e3", 1000),
        ("12E-1", Fraction(12, 10)),
        ("1E", 10**18),
        (".5", Fraction(1, 2)),
        ("-1", -1),
        ("3u", Fraction(3, 10**6)),
    ],
)
def test_quantities_are_exact(written: str | float, value: Fraction | int) -> None:
    assert parse_quantity(written) == value


@pytest.mark.parametrize("written", ["", "one", "1KiB", "1 Gi", "--1", "1e", "0x10"])
def test_what_is_no_quantity_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(written)


def test_cpu_counts_in_milli_units_and_the_rest_in_whole_ones_rounded_up() -> None:
    assert amount("cpu", "0.1") == 100
    assert amount("cpu", "100u") == 1
    assert amount("memory", "1.5") == 2
    assert amount("nvidia.com/gpu", "8") == 8
    assert text("cpu", 1500) == "1500m"
    assert text("nvidia.com/gpu", 4) == "4"
    assert text("memory", 64 * 2**30) == "64Gi"
    assert text("memory", 2**30 + 2**20) == "1025Mi"
    assert text("ephemeral-storage", 1001) == "1001"


def container(
    *, restart_policy: str | None = None, limits: dict[str, str | int | float] | None = None, **requests: str
) -> core.Container:
    return core.Container(
        resources=core.Resources(requests=requests or None, limits=limits), restart_policy=restart_policy
    )


def pod(*containers: core.Container, init: tuple[core.Container, ...] = (), **spec: Any) -> core.Pod:
    return pods.pod(spec={"containers": containers, "initContainers": init, **spec})


def test_containers_add_up_and_a_pod_takes_one_of_the_pod_limit() -> None:
    assert pod_requests(pod(container(cpu="1"), container(cpu="500m"))) == {"cpu": 1500, "pods": 1}


def test_a_limit_without_a_request_is_the_request() -> None:
    assert pod_requests(pod(container(limits={"nvidia.com/gpu": "8", "cpu": "2"}, cpu="1"))) == {
        "cpu": 1000,
        "nvidia.com/gpu": 8,
        "pods": 1,
    }


def test_pod_level_requests_stand_above_the_containers_and_overhead_is_added() -> None:
    spec = {"resources": core.Resources(requests={"cpu": "6"}, limits={"memory": "1Gi"}), "overhead": {"cpu": "250m"}}
    assert pod_requests(pod(container(cpu="1"), **spec)) == {"cpu": 6250, "memory": 2**30, "pods": 1}


def test_a_pod_level_limit_does_not_replace_what_containers_request() -> None:
    spec = {"resources": core.Resources(limits={"cpu": "8"})}
    assert pod_requests(pod(container(cpu="1"), **spec))["cpu"] == 1000
