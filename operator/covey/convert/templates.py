"""Pod templates: carried over as they are, less what is Covey's own.

A template stays whole down to fields that no release knows yet; what is in it is the API server's business. Taken out
are the fields that Covey sets itself and metadata that a template of a DisaggregatedInference has no room for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from covey.api.template import RESERVED
from covey.convert.draft import Draft, is_ours
from covey.convert.fields import ConversionError, Fields

Template = dict[str, Any]

#: A converted resource is placed by Covey, whichever scheduler placed the pods of its source.
_INSTEAD: Final = {"schedulerName": "Covey's scheduler places the pods"}
_CONTAINERS: Final = ("initContainers", "containers")


def template_of(source: Fields, draft: Draft, *, spec: str = "spec") -> Template:
    """A pod template of the source.

    Args:
        source: an object with ``metadata`` and a pod's spec.
        draft: takes the remarks, and the PriorityClass.
        spec: the key of the pod's spec.

    Raises:
        ConversionError: there is no pod spec.
    """
    kept_template: Template = {}
    metadata = source.child("metadata")
    metadata.take("creationTimestamp")  # null, or of no meaning in a template
    for key in ("labels", "annotations"):
        if kept := _not_ours(draft, metadata.at(key), metadata.strings(key)):
            kept_template.setdefault("metadata", {})[key] = kept
    path = source.at(spec)
    given = source.take(spec)
    if given is None:
        raise ConversionError(path, "is missing", "give the pod's spec, as in a Deployment")
    return {**kept_template, "spec": plain_spec(given, path, draft)}


def plain_spec(given: Any, path: str, draft: Draft) -> dict[str, Any]:
    """A pod's spec without the fields that are Covey's own.

    Raises:
        ConversionError: it is no object.
    """
    if not isinstance(given, Mapping):
        raise ConversionError(path, "is not an object", "write it as the API server would")
    for key, instead in RESERVED.items():
        if given.get(key) is not None and key != "priorityClassName":
            draft.remark(f"{path}.{key}", "is Covey's own; left out", _INSTEAD.get(key, instead))
    draft.priorities.append((f"{path}.priorityClassName", given.get("priorityClassName")))
    return {key: value for key, value in given.items() if key not in RESERVED}


def _not_ours(draft: Draft, path: str, given: Mapping[str, str]) -> dict[str, str]:
    for key in filter(is_ours, given):
        draft.remark(f"{path}[{key}]", "is under covey.dev, which is Covey's own; left out")
    return {key: value for key, value in given.items() if not is_ours(key)}


def items(holder: Any, key: str) -> list[Any]:
    """A list of a template that nobody has checked yet; empty where it is none."""
    content = holder.get(key) if isinstance(holder, Mapping) else None
    return list(content) if isinstance(content, list) else []


def name_of(item: Any) -> Any:
    """The name of an item of such a list; None where it has none."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return name if isinstance(name, str) else None


def add_labels(template: Template, key: str, values: Mapping[str, str]) -> Template:
    """A template with more labels or annotations; its own win."""
    if not values:
        return template
    metadata = template.get("metadata", {})
    rest = {key: value for key, value in template.items() if key != "metadata"}
    return {"metadata": {**metadata, key: {**values, **metadata.get(key, {})}}, **rest}


def with_variables(template: Template, variables: Mapping[str, str]) -> Template:
    """A template whose containers have more environment variables, in front; their own win.

    Args:
        template: a pod template.
        variables: name → value, which may refer to Covey's own as ``$(COVEY_INDEX)``: those stand before all others.
    """
    spec = {**template["spec"]}
    for key in _CONTAINERS:
        if isinstance(spec.get(key), list):
            spec[key] = [_with_env(container, variables) for container in spec[key]]
    return {**template, "spec": spec}


def _with_env(container: Any, variables: Mapping[str, str]) -> Any:
    if not isinstance(container, Mapping):
        return container
    own = items(container, "env")
    taken = set(map(name_of, own))
    more = [{"name": name, "value": value} for name, value in variables.items() if name not in taken]
    return {**container, "env": [*more, *own]} if more else container


def remark_on(draft: Draft, template: Template, path: str, pattern: str, what: str, instead: str) -> None:
    """Say which names of another controller a template relies on, each once; not those that it defines itself.

    Args:
        draft: takes the remarks.
        template: a pod template.
        path: where it stands in the source.
        pattern: a regular expression for such names.
        what: says what is wrong with them.
        instead: what to do.
    """
    spec = template["spec"]
    own = {
        name_of(container) for key in _CONTAINERS for holder in items(spec, key) for container in items(holder, "env")
    }
    for name in sorted({name for text in _texts(template) for name in re.findall(pattern, text)} - own):
        draft.remark(path, f"{name} {what}", instead)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
