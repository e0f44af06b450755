"""The reference of the API, in Markdown, from the models as the CRDs are made: every field and every rule."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

from covey.api.constants import VERSION
from covey.api.crds import KINDS, CustomResource
from covey.api.model import CLASS, FieldClass
from covey.api.schema import Schema, structural
from handbook.pages import ROOT

#: A file with an example of each kind that people write.
_EXAMPLES: Final = {
    "DisaggregatedInference": "examples/disaggregated.yaml",
    "ClusterTopology": "examples/topology.yaml",
    "Queue": "examples/queues/queues.yaml",
}
#: What is said of a field by its class, behind its description.
_CLASSES: Final = {
    FieldClass.IMMUTABLE: "immutable",
    FieldClass.IMMUTABLE_WITH_UNITS: "immutable once units exist",
    FieldClass.ROLLED: "replaces pods",
    FieldClass.LIVE_FOR_NEW_PODS: "new pods only",
    FieldClass.LIVE: "in place",
}
#: A default as descriptions say it, where it is a value and no sentence.
_SAID: Final = re.compile(r" ?\bDefault: (?P<value>[\w%-]+)\.")
_LIMITS: Final = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")


@dataclass(frozen=True, slots=True)
class _Object:
    """An object of the schema: where it stands (``spec.roles[]``), and what it is."""

    path: str
    node: Schema


@cache
def reference(*names: str) -> str:
    """Every field of these kinds: its type, default, limits, class and meaning, and the rules of each object.

    Args:
        names: of the kinds; all where none is named.
    """
    kinds = [kind for kind in KINDS if not names or kind.model.__name__ in names]
    return "\n".join(line for kind in kinds for line in _kind(kind)) + "\n"


def _kind(kind: CustomResource) -> Iterator[str]:
    name = kind.model.__name__
    schema = structural(kind.model, marks=True)
    scope = "namespaced" if kind.namespaced else "cluster-scoped"
    yield from (f"## {name}", "")
    yield from (f"`{kind.group}/{VERSION}` · `kubectl get {kind.short_name}` · {scope}", "")
    yield from (_text(schema["description"]), "")
    if kind.scale:
        wanted, present, selector = (f"`{path[1:]}`" for path in kind.scale)
        yield from (f"The scale subresource writes {wanted} and reads {present} and {selector}.", "")
    if name in _EXAMPLES:
        yield from _example(_EXAMPLES[name])
    yield from _rules(name, _Object("", {"x-kubernetes-validations": schema.get("x-kubernetes-validations", ())}))
    for part in ("spec", "status"):
        if part in schema["properties"]:
            for each in _objects(_Object(part, schema["properties"][part])):
                yield from _object(name, each)


def _example(path: str) -> Iterator[str]:
    document = next(yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")))
    yield from ('<details markdown="1">', f"<summary>An example: {path}</summary>", "", "```yaml")
    yield from yaml.safe_dump(document, sort_keys=False, width=100).splitlines()
    yield from ("```", "", "</details>", "")


def _objects(top: _Object) -> Iterator[_Object]:
    """An object and those below it, depth first."""
    yield top
    for name, field in top.node.get("properties", {}).items():
        inner, path = field, f"{top.path}.{name}"
        while "items" in inner:
            inner, path = inner["items"], f"{path}[]"
        # What is declared of a pod's spec is there for the rules, which are listed by themselves.
        if inner.get("properties") and not inner.get("x-kubernetes-preserve-unknown-fields"):
            yield from _objects(_Object(path, inner))


def _object(kind: str, found: _Object) -> Iterator[str]:
    yield from (f'<a id="{_anchor(kind, found.path)}"></a>', "", f"### `{found.path}`", "")
    if description := found.node.get("description"):
        yield from (_text(description), "")
    required = found.node.get("required", ())
    is_status = found.path.startswith("status")
    yield from (
        "| field | type | " + ("" if is_status else "default | ") + "meaning |",
        "|---|---|---|" + "---|" * (not is_status),
    )
    for name, field in found.node["properties"].items():
        path = f"{found.path}.{name}"
        mark = f'<span id="{_anchor(kind, path)}"></span>' if not _is_object(field) else ""
        shown = f"[`{name}`](#{_anchor(kind, _below(path, field))})"
        default = "" if is_status else f"{_default(field, is_required=name in required)} | "
        yield f"| {mark}{shown} | {_type(field)} | {default}{_meaning(field)} |"
    yield ""
    yield from _rules(kind, found)


def _rules(kind: str, found: _Object) -> Iterator[str]:
    """What the API server refuses of an object and of its fields that are no objects, with its own messages."""
    rows = list(dict.fromkeys(_found_rules(found.node, found.path)))
    if rows:
        yield from ('<details markdown="1">', "<summary>What the API server refuses here</summary>", "")
        yield from ("| field | message | rule (CEL) |", "|---|---|---|")
        yield from (f"| `{path or kind}` | {_text(message)} | `{_code(rule)}` |" for path, message, rule in rows)
        yield from ("", "</details>", "")


def _found_rules(node: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield (path + rule.get("fieldPath", "")).strip("."), rule["message"], " ".join(rule["rule"].split())
    for name, field in node.get("properties", {}).items():
        if not _is_object(field):
            yield from _leaf_rules(field, f"{path}.{name}")
        elif "items" in field:
            # A list of objects: these have a heading, the list has none.
            yield from _found_rules(
                {"x-kubernetes-validations": field.get("x-kubernetes-validations", ())}, f"{path}.{name}"
            )


def _leaf_rules(node: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    """The rules of what has no heading of its own, however deep."""
    yield from _found_rules({"x-kubernetes-validations": node.get("x-kubernetes-validations", ())}, path)
    for name, field in node.get("properties", {}).items():
        yield from _leaf_rules(field, f"{path}.{name}")
    if "items" in node:
        yield from _leaf_rules(node["items"], f"{path}[]")


def _is_object(field: Schema) -> bool:
    """Whether it has a heading of its own."""
    while "items" in field:
        field = field["items"]
    return bool(field.get("properties")) and not field.get("x-kubernetes-preserve-unknown-fields")


def _below(path: str, field: Schema) -> str:
    """Where the object stands that a field holds; the field itself where it holds none."""
    if not _is_object(field):
        return path
    while "items" in field:
        field, path = field["items"], f"{path}[]"
    return path


def _anchor(kind: str, path: str) -> str:
    return f"{kind.lower()}.{path.replace('[]', '')}"


def _default(field: Schema, *, is_required: bool) -> str:
    """What holds where nothing is given: stored by the API server, or, where that stores none, taken by Covey."""
    if is_required:
        return "**required**"
    value = field.get("default")
    if value not in (None, {}):
        return f"`{json.dumps(value) if isinstance(value, bool) else value}`"
    said = _SAID.search(field.get("description", ""))
    return f"`{said['value']}`" if said else ""


def _type(field: Schema) -> str:
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if "x-kubernetes-int-or-string" in field:
        return "integer or percentage" if "%" in field.get("pattern", "") else "integer or quantity"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return str(field.get("format", field["type"]))


def _meaning(field: Mapping[str, Any]) -> str:
    """The description, then the limits that it may not have named, and the class as a mark."""
    description = _SAID.sub("", field.get("description", ""))
    words = [_text(description)]
    limits = [f"{name} {field[name]}" for name in _LIMITS if name in field]
    if f"{field.get('minimum')} to {field.get('maximum')}" in description:
        limits = []
    if limits:
        words.append(f'<span class="limits">{" · ".join(limits)}</span>')
    if found := field.get(CLASS):
        kind = FieldClass(found)
        words.append(f'<span class="class class-{kind.name.partition("_WITH_")[0].lower()}">{_CLASSES[kind]}</span>')
    return " ".join(words)


def _text(text: str) -> str:
    """Text in which no character means anything to Markdown or to a table."""
    for character in "\\|*_[]<":
        text = text.replace(character, {"|": "\\|", "<": "&lt;"}.get(character, f"\\{character}"))
    return " ".join(text.split())


def _code(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
