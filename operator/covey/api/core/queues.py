"""``Queue``: how much of the cluster's devices a tenant has by right, and how much of it others may use meanwhile.

And the namespaces that it selects.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, WithJsonSchema

from covey.api.constants import SCHEDULING_API
from covey.api.core.meta import Conditions, Meta, Read
from covey.api.core.pod import LabelSelector, Requirement
from covey.api.model import (
    ATOMIC,
    BY_NAME,
    LABEL_KEY,
    LIVE,
    REQUIRED,
    VERBATIM,
    CelRule,
    DnsLabel,
    Form,
    ListMap,
    NodeLabelKey,
    OneOf,
)


class Namespace(Read, frozen=True):
    """A Namespace, of which only the labels are read."""

    metadata: Meta


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


class Expression(Requirement, frozen=True):
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
    operator: Annotated[str, OneOf(("In", "NotIn", "Exists", "DoesNotExist")), LIVE]
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...] | None, ATOMIC, LIVE, Field(max_length=64)] = (
        None
    )
    """Of In and NotIn: the values."""


class Selector(LabelSelector, frozen=True):
    """Labels that must all be as is said here; an empty selector selects everything."""

    match_labels: Annotated[Labels | None, LIVE] = None
    """Labels and their values."""
    match_expressions: Annotated[tuple[Expression, ...] | None, ATOMIC, Field(max_length=8)] = None
    """Conditions on labels."""


class QueueNamespaces(Read, frozen=True):
    """The namespaces that may use a queue."""

    selector: Selector | None = None
    """Their labels. None selects no namespace, an empty one selects all."""


class QueueResource(Read, frozen=True):
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
    nominal: Annotated[Amount, REQUIRED, LIVE] = 0
    """The amount that the queue has by right: a whole number, also of cpu, or a quantity such as 512Gi."""
    borrow: Annotated[Amount | None, LIVE] = None
    """The most that it may use beyond nominal of what others of the cohort leave. Default: all of it."""
    lend: Annotated[Amount | None, LIVE] = None
    """The most of nominal that others of the cohort may use while it is idle. Default: all of it."""


class QueueFlavor(Read, frozen=True):
    """Nodes of one kind, and how much of their resources the queue has."""

    nodes: Annotated[Labels | None, LIVE] = None
    """Labels of the nodes. A node belongs to the first flavor that selects it; what lies on nodes of none is not counted.
    Default: all nodes."""
    resources: Annotated[tuple[QueueResource, ...], REQUIRED, BY_NAME, Field(min_length=1, max_length=16)] = ()
    """The resources that are counted there. 1 to 16."""


class QueueSpec(Read, frozen=True):
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

    namespaces: QueueNamespaces | None = None
    """The namespaces whose resources may use the queue. Default: none may."""
    cohort: Annotated[DnsLabel | None, LIVE] = None
    """Queues of one cohort lend to each other what they do not use, on flavors with equal nodes. Default: none is lent."""
    weight: Annotated[int, LIVE, Field(ge=1, le=1000)] = 1
    """The weight of the queue in its cohort: one of weight 2 may have borrowed twice as much, for its nominal, as one of
    weight 1 before it gives way. 1 to 1000. Default: 1."""
    flavors: Annotated[tuple[QueueFlavor, ...], REQUIRED, ATOMIC, Field(min_length=1, max_length=16)] = ()
    """Kinds of nodes, the most special first. 1 to 16."""
    borrow_minimums: Annotated[bool, LIVE] = False
    """True: minimums borrow too; such a unit may be taken whole when the owner wants its quota back. Default: false: only
    surplus replicas borrow."""


class QueueUsage(Read, frozen=True):
    """The use of one resource, over all flavors."""

    name: ResourceName
    """The resource."""
    nominal: Annotated[Amount, REQUIRED] = 0
    """The amount that the queue has by right."""
    used: Annotated[Amount, REQUIRED] = 0
    """The amount that its units have."""
    borrowed: Annotated[Amount, REQUIRED] = 0
    """The part of it that is beyond nominal."""
    lent: Annotated[Amount, REQUIRED] = 0
    """The part of nominal that others of the cohort have."""
    waiting: Annotated[Amount, REQUIRED] = 0
    """The amount that pods without nodes ask for."""


class QueueSummary(Read, frozen=True):
    """The use of all resources in words, for kubectl get: amounts in the order of ``resources``."""

    resources: Annotated[str, REQUIRED, Field(max_length=8192)] = ""
    """The names of the resources."""
    used: Annotated[str, REQUIRED, Field(max_length=1024)] = ""
    """The amount that its units have, of that which it has by right."""
    borrowed: Annotated[str, REQUIRED, Field(max_length=1024)] = ""
    """The part of it that is beyond nominal."""
    lent: Annotated[str, REQUIRED, Field(max_length=1024)] = ""
    """The part of nominal that others of the cohort have."""
    waiting: Annotated[str, REQUIRED, Field(max_length=1024)] = ""
    """The amount that pods without nodes ask for."""


class QueueStatus(Read, frozen=True):
    """The use of a queue, as the scheduler process saw it last."""

    observed_generation: Annotated[int | None, Field(ge=0)] = None
    """The metadata.generation that it was computed from."""
    resources: Annotated[tuple[QueueUsage, ...] | None, ListMap(("name",)), Field(max_length=256)] = None
    """The use of each resource."""
    summary: QueueSummary | None = None
    """The same in words."""
    conditions: Conditions | None = None
    """WithinLimits: no more is used than the queue may have. AllNodesCounted: every node belongs to a flavor."""


class Queue(Read, frozen=True):
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

    metadata: Meta
    spec: Annotated[QueueSpec, REQUIRED] = QueueSpec()
    """The quota."""
    status: QueueStatus = QueueStatus()
    """The use of it, as the scheduler process saw it last."""
    api_version: Annotated[str, OneOf((SCHEDULING_API,))] = SCHEDULING_API
