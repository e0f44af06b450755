"""The field reference, in Markdown, made from the models as the CRDs are."""

from collections.abc import Iterator
from typing import Any

from covey.api.constants import VERSION
from covey.api.crds import KINDS, Kind
from covey.api.model import CLASS
from covey.api.schema import Schema, structural


def reference() -> str:
    """Every kind with every field: its type, stored default, class and meaning; then the rules."""
    return "\n".join(["# API reference", *(line for kind in KINDS for line in _kind(kind))]) + "\n"


def _kind(kind: Kind) -> Iterator[str]:
    schema = structural(kind.model, marks=True)
    scope = "namespaced" if kind.namespaced else "cluster-scoped"
    yield from ("", f"## {kind.model.__name__}", "")
    yield f"`{kind.group}/{VERSION}`, short name `{kind.short_name}`, {scope}. {schema['description']}"
    properties = schema["properties"]
    yield from ("", "| field | type | default | class | meaning |", "|---|---|---|---|---|")
    yield from (_spec_row(path, node) for path, node in _fields(properties["spec"], "spec"))
    if "status" in properties:
        yield from ("", "| status | type | meaning |", "|---|---|---|")
        for path, node in _fields(properties["status"], "status"):
            yield f"| `{path}` | {_type(node)} | {_meaning(node)} |"
    rules = list(dict.fromkeys(_rules(schema, "")))
    if rules:
        yield from ("", "What the API server refuses:", "", *rules)


def _fields(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """The fields below an object, depth first, with their paths; ``[]`` stands for an item of a list."""
    for name, field in node.get("properties", {}).items():
        below = f"{path}.{name}"
        yield below, field
        # What is declared of a pod's spec is there for the rules, which are listed by themselves.
        if not field.get("x-kubernetes-preserve-unknown-fields"):
            yield from _fields(field.get("items", field), f"{below}[]" if "items" in field else below)


def _spec_row(path: str, node: Schema) -> str:
    default = "" if node.get("default") in (None, {}) else f"`{_plain(node['default'])}`"
    return f"| `{path}` | {_type(node)} | {default} | {node.get(CLASS, '')} | {_meaning(node)} |"


def _type(node: Schema) -> str:
    if "items" in node:
        return f"list of {_type(node['items'])}"
    if "x-kubernetes-int-or-string" in node:
        return "integer or percentage"
    return " \\| ".join(f"`{value}`" for value in node["enum"]) if "enum" in node else str(node["type"])


def _meaning(node: Schema) -> str:
    return str(node.get("description", "")).replace("|", "\\|").replace("<", "&lt;")


def _rules(node: Schema, path: str) -> Iterator[str]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield f"- `{(path + rule.get('fieldPath', '')).strip('.')}`: {rule['message'].replace('<', '&lt;')}"
    for name, field in node.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}")
    if "items" in node:
        yield from _rules(node["items"], f"{path}[]")


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
