"""Write ``manifests/kustomize/covey-schema.json``: by what kustomize merges lists in patches, of Kubernetes' kinds and of Covey's.

kustomize takes a schema in place of its own, so Kubernetes' kinds have to be in it. It reads nothing of it but the keys of lists; what
leads to none is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from localcluster import Cluster
from localcluster.programs import ROOT

Schema = dict[str, Any]

FILE: Final = ROOT / "manifests" / "kustomize" / "covey-schema.json"
_CRDS: Final = ROOT / "crds"
#: What people write; the other kinds are made by Covey.
_KINDS: Final = ("DisaggregatedInference", "Queue", "ClusterTopology")
_TEMPLATE: Final = {"$ref": "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"}
_STRATEGY: Final = "x-kubernetes-patch-strategy"
_KEY: Final = "x-kubernetes-patch-merge-key"
_KEYS: Final = "x-kubernetes-list-map-keys"
_KIND: Final = "x-kubernetes-group-version-kind"
_REFERENCE: Final = "#/definitions/"


def make_schema(swagger: Mapping[str, Any]) -> Schema:
    """Make the schema of a release of Kubernetes and of Covey's CRDs.

    Args:
        swagger: what the API server answers at ``/openapi/v2``.
    """
    definitions = {name: schema for name, schema in swagger["definitions"].items() if name.startswith("io.k8s.")}
    definitions |= dict(_covey_definitions())
    keyed: dict[str, Schema] = {}
    # Definitions refer to each other, some to themselves: until none more leads to a list with a key.
    while True:
        found = {name: pruned for name in definitions if (pruned := _prune(definitions[name], keyed))}
        known, keyed = keyed.keys(), found
        if found.keys() == known:
            break
    kinds = {name for name in keyed if _KIND in definitions[name] and not name.endswith("List")}
    for name in kinds:
        keyed[name][_KIND] = definitions[name][_KIND]
    return {"swagger": "2.0", "definitions": {name: keyed[name] for name in sorted(_reached(kinds, keyed))}}


def _covey_definitions() -> Iterator[tuple[str, Schema]]:
    for path in sorted(_CRDS.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        if spec["names"]["kind"] not in _KINDS:
            continue
        for version in spec["versions"]:
            kind = {"group": spec["group"], "version": version["name"], "kind": spec["names"]["kind"]}
            schema = _patched(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"$ref": f"{_REFERENCE}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            yield f"{spec['group']}.{version['name']}.{kind['kind']}", schema | {_KIND: [kind]}


def _patched(schema: Schema) -> Schema:
    """A structural schema with the marks for patches in place of those of a CRD."""
    properties = {
        name: _TEMPLATE if name in {"template", "leaderTemplate"} else _patched(value)
        for name, value in schema.get("properties", {}).items()
    }
    changed: Schema = schema | ({"properties": properties} if properties else {})
    if "items" in schema:
        changed["items"] = _patched(schema["items"])
    if _KEYS in schema:
        changed |= {_STRATEGY: "merge", _KEY: schema[_KEYS][0]}
    return changed


def _prune(schema: Schema, keyed: Mapping[str, Schema]) -> Schema:
    """What of a schema leads to a list with a key; empty for nothing."""
    pruned: Schema = {}
    if _STRATEGY in schema:
        pruned = {key: schema[key] for key in (_STRATEGY, _KEY, _KEYS) if key in schema}
    if schema.get("$ref", "").removeprefix(_REFERENCE) in keyed:
        pruned["$ref"] = schema["$ref"]
    properties = {
        name: inner
        for name, value in schema.get("properties", {}).items()
        if not (name == "status" and _KIND in schema) and (inner := _prune(value, keyed))
    }
    if properties:
        pruned["properties"] = properties
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict) and (inner := _prune(schema[name], keyed)):
            pruned[name] = inner
    if pruned and "items" in schema:
        pruned.setdefault("items", {key: schema["items"][key] for key in ("type",) if key in schema["items"]})
    if pruned and "type" in schema:
        pruned["type"] = schema["type"]
    return pruned


def _reached(kinds: set[str], definitions: Mapping[str, Schema]) -> set[str]:
    reached: set[str] = set()
    open_ = set(kinds)
    while open_:
        name = open_.pop()
        reached.add(name)
        open_ |= set(_references(definitions[name])) - reached
    return reached


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].removeprefix(_REFERENCE)
        for value in schema.values():
            yield from _references(value)


def main() -> None:
    """Write the schema of the release that tests run on."""
    with Cluster(kwok=False) as cluster:
        text = json.dumps(make_schema(cluster.api("GET", "/openapi/v2")), indent=1, sort_keys=True)
    FILE.write_text(text + "\n")


if __name__ == "__main__":
    main()
