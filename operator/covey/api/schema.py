"""The structural OpenAPI schema that a CRD must have, made of pydantic's JSON schema.

Kubernetes knows no ``$ref``, no ``anyOf`` with null and no ``title``, and prunes what is not declared. The conversion
knows what Covey's models use and nothing else: an unknown keyword is an error here, not a CRD that means something
else.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic.fields import FieldInfo

from covey.api.model import CLASS, VERBATIM, CelRule, FieldClass, Model, class_of

Schema = dict[str, Any]

#: Keywords that pass unchanged, in the order in which the CRD has them.
_PASSED: Final = (
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "nullable",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_TEXT: Final = frozenset({"title", "description", CLASS})
_CONVERTED: Final = _TEXT | {"$defs", "required", "properties", "items"}
_CHANGES: Final = {
    FieldClass.ROLLED: "A change replaces the pods.",
    FieldClass.LIVE: "",
    FieldClass.LIVE_FOR_NEW_PODS: "A change holds for new pods only.",
    FieldClass.IMMUTABLE: "Immutable.",
    FieldClass.IMMUTABLE_WITH_UNITS: "Immutable while the status tells of units.",
}
_TYPE_AND_METADATA: Final[Schema] = {
    "apiVersion": {"type": "string", "description": "The group and version of the object's form."},
    "kind": {"type": "string", "description": "The kind of the object."},
    # Named so that rules can point there; the API server knows the rest itself.
    "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
}
_NULL: Final = {"type": "null"}


def structural(model: type[Model], *, marks: bool = False) -> Schema:
    """The schema of a whole object: ``apiVersion``, ``kind``, ``metadata``, ``spec`` and, where it has one, ``status``.

    Immutable fields of ``spec`` get their transition rules on ``spec`` itself, because a rule on an optional field
    is skipped when the field appears or goes.

    Args:
        model: of the object.
        marks: keep a field's class as a keyword of its own (``CLASS``), for the field reference; no API server takes
            it. Else the description says it.

    Raises:
        TypeError: when the model uses something that has no structural form.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    source["properties"] = _TYPE_AND_METADATA | {
        name: source["properties"][name] for name in ("spec", "status") if name in source["properties"]
    }
    source["required"] = ["spec"]
    definitions = source.get("$defs", {})
    status = source["properties"].pop("status", None)
    schema = _Converter(definitions, marks=marks).convert(source)
    if status:
        schema["properties"]["status"] = _Converter(definitions, defaults=False, marks=marks).convert(status)
        _make_atomic(schema["properties"]["status"]["properties"])
    properties = schema["properties"]
    spec = _model_in(model, "spec")
    _put_first(properties["spec"], immutability(spec))
    _put_first(schema, _immutable_fields(spec, ".spec", [], FieldClass.IMMUTABLE_WITH_UNITS))
    return schema


def _make_atomic(properties: Schema) -> None:
    """Have server-side apply take each part of a status as one value: what writes it always writes all of it.

    The API server would keep, compare and store an owner for every field of every condition; that is the larger part of
    what a status takes, in each event of a watch too.
    """
    for schema in properties.values():
        node = schema.get("items", schema)
        if "properties" in node:
            node["x-kubernetes-map-type"] = "atomic"


def _put_first(node: Schema, rules: Iterable[CelRule]) -> None:
    if rendered := [rule.as_schema() for rule in rules]:
        node["x-kubernetes-validations"] = rendered + node.get("x-kubernetes-validations", [])


def immutability(spec: type[Model]) -> Iterator[CelRule]:
    """A transition rule for every immutable field of ``spec``; fields of list items are not looked at.

    Each forbids a change of the value as well as its appearing and its going.
    """
    yield from _immutable_fields(spec, "", [], FieldClass.IMMUTABLE)


def _immutable_fields(model: type[Model], prefix: str, tests: list[str], wanted: FieldClass) -> Iterator[CelRule]:
    """``tests`` are the paths above that may be absent, so that each has to be asked for with ``has``."""
    for name, field in model.model_fields.items():
        path = f"{prefix}.{field.alias or name}"
        asked = tests if field.is_required() or _is_stored(field) else [*tests, path]
        if class_of(field) is wanted:
            yield _immutable_rule(path, asked, wanted)
        elif (nested := model_of(field.annotation)) is not None:
            yield from _immutable_fields(nested, path, asked, wanted)


def _is_stored(field: FieldInfo) -> bool:
    """Tell whether the API server gives the field a value where it has none (see ``_default``)."""
    return isinstance(field.default, str | bool | int)


#: Whether the status tells of units, for a rule of the whole object.
_HAS_UNITS: Final = "has(self.status) && has(self.status.unitStatuses) && self.status.unitStatuses.size() > 0"


def _immutable_rule(path: str, asked: list[str], wanted: FieldClass) -> CelRule:
    name = path.removeprefix(".").removeprefix("spec.")
    remedy = "delete the object and create it anew to change it"
    same = f"self{path} == oldSelf{path}"
    if asked:
        present = " && ".join(f"has(self{test})" for test in asked)
        before = " && ".join(f"has(oldSelf{test})" for test in asked)
        same = f"({present}) ? ({before}) && {same} : !({before})"
    if wanted is FieldClass.IMMUTABLE:
        return CelRule(same, f"{name} is immutable: {remedy}", at=path, forbids=True)
    message = f"{name} is immutable while units exist: suspend the object until its pods are gone, or {remedy}"
    # In this order, as hardly any object has such a field.
    return CelRule(f"({same}) || !({_HAS_UNITS})", message, at=path, forbids=True)


def model_of(annotation: Any) -> type[Model] | None:
    """The model that a field holds, itself or as an option; None for scalars and lists."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, Model) else None
    options = [option for option in getattr(annotation, "__args__", ()) if option is not type(None)]
    is_optional = len(options) == 1 and type(None) in annotation.__args__
    return model_of(options[0]) if is_optional else None


def _model_in(model: type[Model], field: str) -> type[Model]:
    held = model_of(model.model_fields[field].annotation)
    if held is None:
        raise TypeError(f"{model.__name__}.{field} is not a model")
    return held


class _Converter:
    """Converts one schema whose references point into ``definitions``.

    ``defaults``: whether the API server stores them. A status is what its writer wrote, no more.
    """

    def __init__(self, definitions: dict[str, Schema], *, defaults: bool = True, marks: bool = False) -> None:
        self._definitions = definitions
        self._defaults = defaults
        self._described = _with_marks if marks else _description_of

    def convert(self, source: Schema, *, nullable: bool = False) -> Schema:
        """One node and all below it. ``nullable``: null has a meaning here, as in a list's items."""
        node, may_be_null = self._resolve(source)
        if nullable and may_be_null:
            node["nullable"] = True
        if node.pop(VERBATIM, False):
            return self._as_it_is(node)
        if "anyOf" in node:
            return self._as_it_is(_int_or_string(node))
        unknown = node.keys() - _CONVERTED - set(_PASSED)
        if unknown:
            raise TypeError(f"no structural form for {sorted(unknown)} in {source}")
        return self._structure(node)

    def _as_it_is(self, node: Schema) -> Schema:
        return self._described(node) | {key: value for key, value in node.items() if key not in _TEXT | {"default"}}

    def _structure(self, node: Schema) -> Schema:
        schema = self._described(node)
        schema |= {key: node[key] for key in _PASSED if key in node and key != "default"}
        if node.get("required"):
            schema["required"] = node["required"]
        if node.get("properties"):
            schema["properties"] = {name: self.convert(field) for name, field in node["properties"].items()}
        if "items" in node:
            schema["items"] = self.convert(node["items"], nullable=True)
        return schema | _default(node, schema) if self._defaults else schema

    def _resolve(self, source: Schema) -> tuple[Schema, bool]:
        """Follow references and take null out of an option. What stands beside a reference wins over its target."""
        node, may_be_null = dict(source), False
        while True:
            options = node.get("anyOf", [])
            if "$ref" in node:
                target = self._definitions[node.pop("$ref").rpartition("/")[2]]
            elif _NULL in options:
                may_be_null = True
                del node["anyOf"]
                rest = [option for option in options if option != _NULL]
                target = rest[0] if len(rest) == 1 else {"anyOf": rest}
            else:
                return node, may_be_null
            node = target | node


def _description_of(node: Schema) -> Schema:
    """The description: meaning, and what a change does."""
    sentences = [node.get("description", "").replace("``", "")]
    if CLASS in node:
        sentences.append(_CHANGES[FieldClass(node[CLASS])])
    text = " ".join(" ".join(sentences).split())
    return {"description": text} if text else {}


def _with_marks(node: Schema) -> Schema:
    marks = {key: node[key] for key in (CLASS,) if key in node}
    return _description_of({key: value for key, value in node.items() if key not in marks}) | marks


def _default(node: Schema, schema: Schema) -> Schema:
    """The default that the API server stores: a scalar, or ``{}`` for an object that has stored defaults itself."""
    default = node.get("default")
    if isinstance(default, dict):
        return {"default": {}} if any("default" in field for field in schema.get("properties", {}).values()) else {}
    return {} if default is None or default == [] else {"default": default}


def _int_or_string(node: Schema) -> Schema:
    options = node.pop("anyOf")
    if [option.get("type") for option in options] != ["integer", "string"]:
        raise TypeError(f"no structural form for anyOf {options}")
    merged = {key: value for option in options for key, value in option.items() if key != "type"}
    form = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    return node | form | merged
