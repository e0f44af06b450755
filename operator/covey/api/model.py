"""The ground on which every model of the API stands: naming, field classes, validation rules, list semantics.

What a field means to a running resource (its class), how server-side apply merges a list, and which rules the API
server checks are written beside the field, once. The CRD generator, the field reference and the revision hash read
them from here, so that they cannot disagree.

At the end the parts that API objects have in common: forms of names, label keys and times, metadata, conditions.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

#: Marks a schema given by hand that is structural already and passes into the CRD as it is.
VERBATIM: Final = "x-covey-verbatim"
#: Carries a field's class to the CRD generator, which turns it into words.
CLASS: Final = "x-covey-class"


class FieldClass(StrEnum):
    """The effect of changing a field of a running resource.

    ``ROLLED``: it is part of the role's revision hash, pods are replaced. ``LIVE``: takes effect in place.
    ``LIVE_FOR_NEW_PODS``: in place as well, but pods that have their node stay where they are.
    ``IMMUTABLE``: the API server refuses the change. ``IMMUTABLE_WITH_UNITS``: likewise, once the status tells of units;
    before that, and while it is suspended, what was mistyped may be corrected.
    """

    ROLLED = "rolled"
    LIVE = "live"
    LIVE_FOR_NEW_PODS = "live for new pods"
    IMMUTABLE = "immutable"
    IMMUTABLE_WITH_UNITS = "immutable once units exist"

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Tell the CRD generator, which says it in the field's description."""
        return handler(source) | {CLASS: self.value}


ROLLED: Final = FieldClass.ROLLED
LIVE: Final = FieldClass.LIVE
LIVE_FOR_NEW_PODS: Final = FieldClass.LIVE_FOR_NEW_PODS
IMMUTABLE: Final = FieldClass.IMMUTABLE
IMMUTABLE_WITH_UNITS: Final = FieldClass.IMMUTABLE_WITH_UNITS


@dataclass(frozen=True, slots=True)
class ListMap:
    """Server-side apply merges the list by these keys, and the API server refuses two items with equal keys."""

    keys: tuple[str, ...]

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Mark the list in the schema."""
        return handler(source) | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(self.keys)}


@dataclass(frozen=True, slots=True)
class ListType:
    """Server-side apply treats the list as one value (``atomic``) or as a set of scalars (``set``)."""

    kind: Literal["atomic", "set"]

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Mark the list in the schema."""
        return handler(source) | {"x-kubernetes-list-type": self.kind}


BY_NAME: Final = ListMap(("name",))
ATOMIC: Final = ListType("atomic")
SET: Final = ListType("set")


@dataclass(frozen=True, slots=True)
class CelRule:
    """A CEL rule (``x-kubernetes-validations``) of the object that declares it.

    The API server puts the path in front of ``message``; ``at`` (``.name``, ``.topology.name``) points below the
    object. A rule with ``oldSelf`` is a transition rule: it is skipped when the object itself appears or goes.
    """

    cel: str
    message: str
    at: str = ""
    #: A CEL expression for a message that names what it found; ``message`` stands in where it fails.
    says: str = ""
    forbids: bool = False

    def as_schema(self) -> dict[str, Any]:
        """The rule as the CRD spells it."""
        rendered: dict[str, Any] = {"rule": self.cel, "message": self.message}
        if self.says:
            rendered["messageExpression"] = self.says
        if self.at:
            rendered["fieldPath"] = self.at
        if self.forbids:
            rendered["reason"] = "FieldValueForbidden"
        return rendered


@dataclass(frozen=True, slots=True)
class CelRules:
    """Rules of one field's value, such as a list."""

    rules: tuple[CelRule, ...]

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Carry the rules into the field's schema."""
        return handler(source) | {"x-kubernetes-validations": [rule.as_schema() for rule in self.rules]}


@dataclass(frozen=True, slots=True)
class Form:
    """Says in words what a string's pattern means: the CRD gets a rule with this message in place of the pattern.

    The API server's own message for a pattern is the bare regular expression.
    """

    words: str

    def __get_pydantic_json_schema__(self, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Turn the pattern into a rule."""
        schema = dict(handler(source))
        pattern = schema.pop("pattern")
        rule = CelRule(f"self.matches('{pattern}')", self.words)
        return schema | {"x-kubernetes-validations": [rule.as_schema()]}


@dataclass(frozen=True, slots=True)
class OneOf:
    """The texts that a field may have: of a struct, which is read whatever another release has written there."""

    texts: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Take no other text."""
        return core_schema.literal_schema(list(self.texts))


@dataclass(frozen=True, slots=True)
class Required:
    """A field that has to be written: of a struct, which is read without it too."""


REQUIRED: Final = Required()


class Model(BaseModel):
    """A part of an API object: snake-case attributes, camel-case keys, frozen, unknown fields ignored.

    What is stored may come from a newer release; refusing unknown fields is the API server's business.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="ignore",
        frozen=True,
    )
    RULES: ClassVar[tuple[CelRule, ...]] = ()
    #: The classes whose source has the docstrings of its fields, if it is made of a struct (``covey.api.structs``).
    DECLARED_IN: ClassVar[tuple[type, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, source: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Carry the rules of the model and the docstrings of its fields into its schema.

        Pydantic's ``use_attribute_docstrings`` reads the source of all models whenever they are imported.
        """
        schema = handler(source)
        resolved = handler.resolve_ref_schema(schema)
        for name, description in _field_docstrings(cls).items():
            resolved["properties"][cls.model_fields[name].alias or name].setdefault("description", description)
        if cls.RULES:
            resolved["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.RULES]
        return schema

    def as_object(self) -> dict[str, Any]:
        """Plain JSON with the API's keys; what is None is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def _field_docstrings(model: type[Model]) -> dict[str, str]:
    """The string below each field of a model, by name; those of its bases too."""
    docstrings: dict[str, str] = {}
    for base in reversed(model.DECLARED_IN or model.__mro__[: model.__mro__.index(Model)]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    if name in model.model_fields:
                        docstrings[name] = inspect.cleandoc(words)
    return docstrings


def class_of(field: FieldInfo) -> FieldClass | None:
    """The class of a field; None for an object, whose fields have their own, and for a status field."""
    return next((mark for mark in field.metadata if isinstance(mark, FieldClass)), None)


def values_of(model: Model, wanted: FieldClass) -> Iterator[tuple[str, Any]]:
    """The fields of one class that a model itself has, by API name, as JSON; None is left out."""
    stored = model.as_object()
    for name, field in type(model).model_fields.items():
        key = field.alias or name
        if class_of(field) is wanted and key in stored:
            yield key, stored[key]


DNS_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY: Final = (
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
)
LABEL_VALUE: Final = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"

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


ONE_MODE: Final = OneOf(tuple(mode.value for mode in Mode))


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


class StatusCondition(Model):
    """One aspect of the state, with the reason for it (``metav1.Condition``)."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """The aspect that the condition tells of."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: Count | None = None
    """The metadata.generation that the condition was computed from."""
    last_transition_time: Timestamp
    """The time at which the status changed last."""
    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """One word in CamelCase, for programs."""
    message: Sentence
    """One sentence, for people."""


Conditions = Annotated[tuple[StatusCondition, ...], ListMap(("type",)), Field(max_length=32)]
