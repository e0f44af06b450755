"""Builders of resources, and strategies for any that the API server would take."""

from typing import Any

from hypothesis import strategies as st

from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from engine_commands import SERVE

CONTAINER: dict[str, Any] = {"name": "engine", "image": "engine:1", "command": list(SERVE)}

#: The container of what former releases have stored; hashes that they computed are of it.
FORMER: dict[str, Any] = {"name": "engine", "image": "engine:1"}


def template(*containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """A pod template of these containers, or of an engine."""
    return {"spec": {"containers": list(containers) or [CONTAINER], **pod}}


def role(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": template(), **fields}


def inference(
    *roles: dict[str, Any], name: str = "llama", uid: str = "uid-llama", **spec: Any
) -> DisaggregatedInference:
    return DisaggregatedInference.model_validate(
        {
            "metadata": {"name": name, "namespace": "ml", "uid": uid, "generation": 1},
            "spec": {"roles": list(roles), **spec},
        }
    )


def llama(
    prefill: int | dict[str, Any] = 2, decode: int | dict[str, Any] = 3, *others: dict[str, Any], **spec: Any
) -> DisaggregatedInference:
    """Prefill replicas of two pods, and decode replicas of one: numbers of replicas, or fields of the role."""
    fields = [{"replicas": given} if isinstance(given, int) else given for given in (prefill, decode)]
    return inference(
        role("prefill", **{"replicas": 2, "size": 2, **fields[0]}),
        role("decode", **{"replicas": 3, **fields[1]}),
        *others,
        **spec,
    )


def confirmed(found: DisaggregatedInference) -> DisaggregatedInference:
    """The same whose owner lets units be taken down for this generation of it."""
    annotations = {names.ANNOTATION_REMAKE: str(found.metadata.generation)}
    return found.model_copy(update={"metadata": found.metadata.model_copy(update={"annotations": annotations})})


#: DNS labels, with the awkward ones that look like numbers.
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
role_names = st.one_of(
    labels,
    st.sampled_from(
        ["prefill", "prefill-0", "prefill-0-1", "decode", "0", "unit", "0-0", "0-prefill-0", "prefill-svc"]
    ),
)


networks = st.fixed_dictionaries(
    {},
    optional={
        "subdomain": st.sampled_from(["Shared", "UniquePerReplica"]),
        "ports": st.just([{"name": "http", "port": 8000}]),
        "service": st.fixed_dictionaries({}, optional={"endpoints": st.sampled_from(["Leaders", "All"])}),
    },
).map(lambda network: network if "ports" in network else {**network, "service": None})


@st.composite
def inferences(
    draw: st.DrawFn, *, max_units: int = 3, max_replicas: int = 3, max_size: int = 3
) -> DisaggregatedInference:
    names = draw(st.lists(role_names, min_size=1, max_size=4, unique=True))
    roles = []
    for name in names:
        replicas = draw(st.integers(0, max_replicas))
        minimum = draw(st.integers(0, replicas))
        found = role(name, replicas=replicas, minReplicas=minimum, size=draw(st.integers(1, max_size)))
        if network := draw(networks):
            found["network"] = network
        roles.append(found)
    if not any(each["minReplicas"] for each in roles):
        roles[0] |= {"replicas": max(roles[0]["replicas"], 1), "minReplicas": 1}
    long = st.integers(1, 63).map(lambda length: "n" * length)
    return inference(*roles, name=draw(st.one_of(labels, long)), replicas=draw(st.integers(0, max_units)))
