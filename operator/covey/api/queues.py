"""``Queue``: how much of the cluster's devices a tenant has by right, and how much of it others may use meanwhile."""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, WithJsonSchema

from covey.api.model import (
    ATOMIC,
    BY_NAME,
    LABEL_KEY,
    LIVE,
    VERBATIM,
    CelRule,
    Conditions,
    DnsLabel,
    Form,
    ListMap,
    Model,
    NodeLabelKey,
    ObjectMeta,
)

_LABELS: Final[dict[str, Any]] = {
    VERBATIM: True,
    "type": "object",
    "maxProperties": 8,
    "additionalProperties": {"type": "string", "maxLength": 63},
}
Labels = Annotated[dict[str, str], WithJsonSchema(_LABELS)]
#: A whole number, or a quantity that is one. The pattern says so, not a rule: before Kubernetes 1.31 the API server takes
#: any rule over a value of two types for too costly.
Amount = (
    Annotated[int, Field(ge=0)]
    | Annotated[str, Field(max_length=32, pattern="^[0-9]+(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")]
)
ResourceName = Annotated[
    str, Field(min_length=1, max_length=317, pattern=LABEL_KEY), Form("use a resource's name, such as nvidia.com/gpu")
]


class Expression(Model):
    """A condition on one label."""

    RULES: ClassVar = (
        CelRule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "In and NotIn need values, Exists and DoesNotExist take none",
            at=".values",
        ),
    )

    key: Annotated[NodeLabelKey, LIVE]
    """The key of the label."""
    operator: Annotated[Literal["In", "NotIn", "Exists", "DoesNotExist"], LIVE]
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], ATOMIC, LIVE, Field(max_length=64)] = ()
    """Of In and NotIn: the values."""


class Selector(Model):
    """Labels that must all be as is said here; an empty selector selects everything."""

    match_labels: Annotated[Labels | None, LIVE] = None
    """Labels and their values."""
    match_expressions: Annotated[tuple[Expression, ...], ATOMIC, Field(max_length=8)] = ()
    """Conditions on labels."""


class Namespaces(Model):
    """The namespaces that may use a queue."""

    selector: Selector | None = None
    """Their labels. None selects no namespace, an empty one selects all."""


class QueueResource(Model):
    """One resource of a flavor."""

    RULES: ClassVar = (
        CelRule(
            "!has(self.lend) || type(self.lend) != int || type(self.nominal) != int || int(self.lend) <= int(self.nominal)",
            "lend is more than nominal: nobody lends more than there is, so lower lend or raise nominal",
            at=".lend",
        ),
    )

    name: Annotated[ResourceName, LIVE]
    """The resource, such as nvidia.com/gpu. What is not listed is not counted."""
    nominal: Annotated[Amount, LIVE]
    """The amount that the queue has by right: a whole number, also of cpu, or a quantity such as 512Gi."""
    borrow: Annotated[Amount | None, LIVE] = None
    """The most that it may use beyond nominal of what others of the cohort leave. Default: all of it."""
    lend: Annotated[Amount | None, LIVE] = None
    """The most of nominal that others of the cohort may use while it is idle. Default: all of it."""


class QueueFlavor(Model):
    """Nodes of one kind, and how much of their resources the queue has."""

    nodes: Annotated[Labels | None, LIVE] = None
    """Labels of the nodes. A node belongs to the first flavor that selects it; what lies on nodes of none is not counted.
    Default: all nodes."""
    resources: Annotated[tuple[QueueResource, ...], BY_NAME, Field(min_length=1, max_length=16)]
    """The resources that are counted there. 1 to 16."""


class QueueSpec(Model):
    """The quota of a tenant."""

    RULES: ClassVar = (
        CelRule(
            "has(self.cohort) || self.flavors.all(f, f.resources.all(r, !has(r.borrow) && !has(r.lend)))",
            "borrow and lend need a cohort, whose queues lend to each other: name one, or remove them",
            at=".cohort",
        ),
        CelRule(
            "self.flavors.all(f, self.flavors.exists_one(g, (has(f.nodes) ? f.nodes : {}) == (has(g.nodes) ? g.nodes : {})))",
            "two flavors select the same nodes, of which the second would get none: merge them",
            at=".flavors",
        ),
    )

    namespaces: Namespaces | None = None
    """The namespaces whose resources may use the queue. Default: none may."""
    cohort: Annotated[DnsLabel | None, LIVE] = None
    """Queues of one cohort lend to each other what they do not use, on flavors with equal nodes. Default: none is lent."""
    weight: Annotated[int, LIVE, Field(ge=1, le=1000)] = 1
    """The weight of the queue in its cohort: one of weight 2 may have borrowed twice as much, for its nominal, as one of
    weight 1 before it gives way. 1 to 1000. Default: 1."""
    flavors: Annotated[tuple[QueueFlavor, ...], ATOMIC, Field(min_length=1, max_length=16)]
    """Kinds of nodes, the most special first. 1 to 16."""
    borrow_minimums: Annotated[bool, LIVE] = False
    """True: minimums borrow too; such a unit may be taken whole when the owner wants its quota back. Default: false: only
    surplus replicas borrow."""


class QueueUsage(Model):
    """The use of one resource, over all flavors."""

    name: ResourceName
    """The resource."""
    nominal: Amount
    """The amount that the queue has by right."""
    used: Amount
    """The amount that its units have."""
    borrowed: Amount
    """The part of it that is beyond nominal."""
    lent: Amount
    """The part of nominal that others of the cohort have."""
    waiting: Amount
    """The amount that pods without nodes ask for."""


class QueueSummary(Model):
    """The use of all resources in words, for kubectl get: amounts in the order of ``resources``."""

    resources: Annotated[str, Field(max_length=8192)]
    """The names of the resources."""
    used: Annotated[str, Field(max_length=1024)]
    """The amount that its units have, of that which it has by right."""
    borrowed: Annotated[str, Field(max_length=1024)]
    """The part of it that is beyond nominal."""
    lent: Annotated[str, Field(max_length=1024)]
    """The part of nominal that others of the cohort have."""
    waiting: Annotated[str, Field(max_length=1024)]
    """The amount that pods without nodes ask for."""


class QueueStatus(Model):
    """The use of a queue, as the scheduler process saw it last."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """The metadata.generation that it was computed from."""
    resources: Annotated[tuple[QueueUsage, ...], ListMap(("name",)), Field(max_length=256)] = ()
    """The use of each resource."""
    summary: QueueSummary | None = None
    """The same in words."""
    conditions: Conditions = ()
    """WithinLimits: no more is used than the queue may have. AllNodesCounted: every node belongs to a flavor."""


class Queue(Model):
    """The quota of a tenant: what it has by right, what it may borrow from others, and what it lends to them.

    Minimums of units and surplus replicas are counted whole, from the moment that they have their nodes. Priority decides
    inside a queue; between queues of a cohort whoever has borrowed least for its nominal and weight is first.
    """

    RULES: ClassVar = (
        CelRule(
            "self.metadata.name.size() <= 63",
            "the name is part of metrics and of messages: use at most 63 characters",
            at=".metadata.name",
        ),
    )

    api_version: Literal["scheduling.covey.dev/v1alpha1"] = "scheduling.covey.dev/v1alpha1"
    kind: Literal["Queue"] = "Queue"
    metadata: ObjectMeta
    spec: QueueSpec
    """The quota."""
    status: QueueStatus | None = None
    """The use of it, as the scheduler process saw it last."""
