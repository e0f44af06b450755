"""Finding what is no quantity in a pod's spec, with its path; the planner only says that there is something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from covey.placement.resources import parse_quantity


def bad_quantities(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field path below the spec, and what is wrong, of everything that should be a quantity and is none."""
    yield from _of_resources("resources", spec.get("resources"))
    yield from _of_list("overhead", spec.get("overhead"))
    for name in ("initContainers", "containers"):
        for number, container in enumerate(spec.get(name) or ()):
            yield from _of_resources(f"{name}[{number}].resources", container.get("resources"))


def _of_resources(path: str, resources: Any) -> Iterator[tuple[str, str]]:
    for name in ("limits", "requests"):
        yield from _of_list(f"{path}.{name}", (resources or {}).get(name))


def _of_list(path: str, quantities: Any) -> Iterator[tuple[str, str]]:
    for resource, quantity in (quantities or {}).items():
        try:
            parse_quantity(quantity)
        except ValueError as error:
            yield f"{path}[{resource}]", str(error)
