"""Command lines of the examples, parsed by the programs themselves."""

from __future__ import annotations

import shlex

import pytest

from routers.programs import Example, parse

SMG, SGLANG, VLLM = Example("routers/smg.yaml"), Example("engines/sglang.yaml"), Example("engines/vllm.yaml")


@pytest.mark.parametrize("module", ["smg", "sglang_router"])
def test_smg_and_the_router_that_it_came_from_read_the_example_alike(module: str) -> None:
    arguments = [each.replace("$(NAMESPACE)", "models") for each in SMG.container()["args"]]
    found = parse(module, arguments)
    ours = {"covey.dev/inference": "smg", "covey.dev/index": "0", "covey.dev/endpoint": "true"}
    assert found["prefill_selector"] == ours | {"covey.dev/role": "prefill"}
    assert found["decode_selector"] == ours | {"covey.dev/role": "decode"}
    assert (found["service_discovery"], found["pd_disaggregation"]) == (True, True)
    assert (found["service_discovery_namespace"], found["service_discovery_port"]) == ("models", SMG.port)
    assert found["bootstrap_port_annotation"] == "sglang.ai/bootstrap-port"


def test_the_router_of_sglang_reads_its_example() -> None:
    found = parse("sglang_router", arguments_of(SGLANG, "sglang_router.launch_router"))
    ours = {
        "covey.dev/inference": "sglang",
        "covey.dev/unit": "0",
        "covey.dev/index": "0",
        "covey.dev/endpoint": "true",
    }
    assert found["prefill_selector"] == ours | {"covey.dev/role": "prefill"}
    assert found["decode_selector"] == ours | {"covey.dev/role": "decode"}
    assert (found["service_discovery"], found["pd_disaggregation"]) == (True, True)
    assert (found["service_discovery_namespace"], found["service_discovery_port"]) == ("models", SGLANG.port)


def test_the_router_of_vllm_reads_its_example() -> None:
    found = parse("vllm_router", arguments_of(VLLM, "vllm-router"))
    assert found["vllm_pd_disaggregation"]
    assert found["policy"] == "consistent_hash"
    assert found["prefill_urls"] == [[f"http://vllm-prefill-svc.models:{VLLM.port}", None]]
    assert found["decode_urls"] == [f"http://vllm-decode-svc.models:{VLLM.port}"]


def arguments_of(example: Example, program: str) -> list[str]:
    """What the script of an example gives to its router."""
    script = example.command()[-1]
    for line in reversed(script.splitlines()):
        name, _, value = line.partition("=")
        if name == "ours":
            script = script.replace("$ours", value.strip('"'))
    for variable, value in {
        "$COVEY_UNIT": "0",
        "$POD_NAMESPACE": "models",
        "$COVEY_ROLE_PREFILL_SERVICE": "vllm-prefill-svc.models",
        "$COVEY_ROLE_DECODE_SERVICE": "vllm-decode-svc.models",
    }.items():
        script = script.replace(variable, value)
    words = shlex.split(script.replace("\\\n", " "))
    return words[words.index(program) + 1 :]
