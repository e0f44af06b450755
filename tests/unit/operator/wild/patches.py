"""What patches make of objects: RFC 6902, and server-side apply as far as one manager needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from covey.kube.errors import Invalid

Json = dict[str, Any]


def patch(found: Json, operations: Sequence[Mapping[str, Any]]) -> Json:
    """Apply JSON patch operations, all or none.

    Raises:
        Invalid: a test has failed, or there is no such place.
    """
    made = deepcopy(found)
    for each in operations:
        *path, last = (part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:])
        try:
            at: Any = made
            for part in path:
                at = at[int(part)] if isinstance(at, list) else at[part]
            _operate(at, int(last) if isinstance(at, list) else last, each)
        except LookupError:
            raise Invalid(422, "Invalid", "the server rejected our request due to an error in our request") from None
    return made


def _operate(at: Any, key: Any, operation: Mapping[str, Any]) -> None:
    match operation["op"]:
        case "test":
            if at[key] != operation["value"]:
                raise LookupError(key)
        case "remove":
            del at[key]
        case "replace":
            _ = at[key]
            at[key] = deepcopy(operation["value"])
        case "add":
            at[key] = deepcopy(operation["value"])


def apply(found: Json, before: Mapping[str, Any] | None, wanted: Mapping[str, Any]) -> Json:
    """The object once a manager has applied ``wanted``, which had applied ``before``: what it gives up goes."""
    made = deepcopy(found)
    if before is not None:
        _give_up(made, before, wanted)
    _put(made, wanted)
    return made


def _give_up(made: Any, before: Any, wanted: Any) -> None:
    for key in before:
        if key not in wanted:
            made.pop(key, None)
        elif isinstance(before[key], dict) and isinstance(wanted[key], dict) and isinstance(made.get(key), dict):
            _give_up(made[key], before[key], wanted[key])


def _put(made: Json, wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(made.get(key), dict):
            _put(made[key], value)
        elif key in {"ports", "conditions"} and isinstance(made.get(key), list):
            made[key] = _merge_list(made[key], value, ("port", "protocol") if key == "ports" else ("type",))
        else:
            made[key] = deepcopy(value)


def _merge_list(found: list[Json], wanted: Sequence[Json], keys: Sequence[str]) -> list[Json]:
    """Lists that are maps: items of the same keys are merged. Others of ports go, since one manager alone has them."""

    def key_of(item: Json) -> tuple[Any, ...]:
        return tuple(item.get(key, "TCP") for key in keys)

    known = {key_of(each): each for each in found}
    made = [{**known.get(key_of(each), {}), **each} for each in wanted]
    others = [] if "port" in keys else [each for key, each in known.items() if key not in {key_of(w) for w in wanted}]
    return [*others, *made]
