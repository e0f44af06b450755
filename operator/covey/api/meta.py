"""The common parts of API objects: forms of names, label keys and times, metadata, conditions."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from covey.api.model import ATOMIC, Form, ListMap, Model

DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)

#: A lower-case DNS label (RFC 1123).
DnsLabel = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
#: The name of another object.
ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
_DNS_LABEL_FORM: Final = Form("use lower-case letters, digits and -, with a letter or digit at both ends")
#: A role's name: short, because it is part of host names.
RoleName = Annotated[str, Field(min_length=1, max_length=20, pattern=DNS_LABEL), _DNS_LABEL_FORM]
#: The name of a level of a topology; it becomes part of a label key, hence its form.
LevelName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL), _DNS_LABEL_FORM]
#: The key of a node label: a name, which may have a DNS prefix.
LabelKey = Annotated[str, Field(min_length=1, max_length=317, pattern=LABEL_KEY)]
#: The key of a node label, where a person writes it.
NodeLabelKey = Annotated[LabelKey, Form("use a label key, such as topology.example.com/rack")]
#: Label values from a topology's broadest level down; null where a node lacks that level.
DomainPath = Annotated[tuple[Annotated[str, Field(max_length=63)] | None, ...], ATOMIC, Field(max_length=10)]
#: RFC 3339, as the API server writes it.
Timestamp = Annotated[str, Field(max_length=64, json_schema_extra={"format": "date-time"})]
#: A number, or a percentage of another number.
IntOrPercent = Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=4, pattern="^(100|[0-9]{1,2})%$")]
Count = Annotated[int, Field(ge=0)]
Word = Annotated[str, Field(max_length=1024)]
Uid = Annotated[str, Field(min_length=1, max_length=64)]
Sentence = Annotated[str, Field(max_length=32768)]


class Mode(StrEnum):
    """The strength of a constraint on placement."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


class ObjectMeta(Model):
    """``metav1.ObjectMeta``, as far as it is read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Condition(Model):
    """One aspect of the state, with the reason for it (``metav1.Condition``)."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: Count | None = None
    """The metadata.generation that the condition was computed from."""
    last_transition_time: Timestamp
    """When the status changed last."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """One word in CamelCase, for programs."""
    message: Sentence
    """One sentence, for people."""


Conditions = Annotated[tuple[Condition, ...], ListMap(("type",)), Field(max_length=32)]
