"""The pod template as the CRD sees it: stored as it is, with just enough structure for the rules to see.

The full PodTemplateSpec, twice, would make a CRD of more than a megabyte, and it would prune fields of newer
Kubernetes releases in silence. What is not declared here is kept and checked by a strict dry run of a real pod.
"""

from typing import Annotated, Any, Final

from pydantic import WithJsonSchema

from covey.api.constants import ANNOTATION_DOMAIN_LABELS, ANNOTATION_RESTART_IGNORED
from covey.api.model import VERBATIM, CelRule

#: Fields of a pod that Covey sets itself, and where a person says the same thing instead.
RESERVED: Final[dict[str, str]] = {
    "nodeName": "the scheduler chooses the node; use nodeSelector or affinity to restrict the choice",
    "schedulerName": "set spec.schedulerName of the DisaggregatedInference instead",
    "schedulingGates": "Covey gates its pods itself",
    "schedulingGroup": "Covey puts its pods into their groups itself",
    "priorityClassName": "set spec.priorityClassName of the DisaggregatedInference instead",
    "priority": "set spec.priorityClassName of the DisaggregatedInference instead",
    "hostname": "Covey gives every pod the name <unit>-<role>-<replica>-<index>",
    "subdomain": "Covey names its headless Service itself",
}

_OPAQUE: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_STRING: Final[dict[str, Any]] = {"type": "string", "maxLength": 253}
_RESERVED_TYPES: Final[dict[str, dict[str, Any]]] = {
    "schedulingGates": {"type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic", "items": _OPAQUE},
    "schedulingGroup": _OPAQUE,
    "priority": {"type": "integer", "format": "int32"},
}


def _reserved_rule(name: str, instead: str) -> CelRule:
    return CelRule(f"!has(self.{name})", f"{name} is Covey's own: remove it; {instead}", at=f".{name}", forbids=True)


def _containers(description: str, *, least: int) -> dict[str, Any]:
    return {
        "type": "array",
        "description": description,
        "minItems": least,
        "maxItems": 64,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 63, "description": "The container's name."}
            },
            "x-kubernetes-preserve-unknown-fields": True,
        },
    }


def _strings(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "maxProperties": 256,
        "additionalProperties": {"type": "string"},
    }


def _own_keys(what: str, *but: str) -> dict[str, Any]:
    """Refuse keys under ``covey.dev``, but those that are for people to set."""
    allowed = "".join(f"key == '{exempt}' || " for exempt in but)
    except_for = f" except {', '.join(but)}" if but else ""
    rule = CelRule(
        f"self.all(key, {allowed}!key.startsWith('covey.dev/') && !key.contains('.covey.dev/'))",
        f"{what} under covey.dev are Covey's own{except_for}: remove them, or use a prefix of yours",
        forbids=True,
    )
    return {"x-kubernetes-validations": [rule.as_schema()]}


#: Annotations of Covey's that people set.
FOR_PEOPLE: Final = (ANNOTATION_RESTART_IGNORED, ANNOTATION_DOMAIN_LABELS)

RESERVED_RULES: Final = tuple(_reserved_rule(name, instead) for name, instead in RESERVED.items())

POD_TEMPLATE_SCHEMA: Final[dict[str, Any]] = {
    VERBATIM: True,
    "type": "object",
    "required": ["spec"],
    "properties": {
        "metadata": {
            "type": "object",
            "description": "Labels and annotations of the pods. Keys under covey.dev are Covey's, but for the annotations "
            f"{' and '.join(FOR_PEOPLE)}.",
            "properties": {
                "labels": _strings("Labels of the pods, beside those that Covey sets.") | _own_keys("labels"),
                "annotations": _strings("Annotations of the pods.") | _own_keys("annotations", *FOR_PEOPLE),
                "creationTimestamp": {
                    "type": "string",
                    "nullable": True,
                    "maxLength": 64,
                    "description": "Only null, which generated manifests carry; it means nothing.",
                },
            },
        },
        "spec": {
            "type": "object",
            "description": "A PodSpec, as in a Deployment; kubectl explain pod.spec has its fields.",
            "required": ["containers"],
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-validations": [rule.as_schema() for rule in RESERVED_RULES],
            "properties": {
                "containers": _containers("The containers of the pod; at least one.", least=1),
                "initContainers": _containers("Init containers and sidecars, in the order they start.", least=0),
                **{
                    name: {**_RESERVED_TYPES.get(name, _STRING), "description": f"Not allowed here: {instead}."}
                    for name, instead in RESERVED.items()
                },
            },
        },
    },
}

PodTemplate = Annotated[dict[str, Any], WithJsonSchema(POD_TEMPLATE_SCHEMA)]
