"""Models of structs: an object that Covey reads often is declared once, as the struct that msgspec reads it into.

msgspec takes the type of a field and passes over the rest of its annotation; the model has all of it: bounds, classes of
fields, list semantics. So the CRDs and ``covey plan`` are as strict as they are with other models, while a struct is read
from whatever another release or another person has written (``REQUIRED``, ``OneOf``; decision 1).
"""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from pydantic import create_model

from covey.api import core
from covey.api.model import REQUIRED, Model, ObjectMeta, StatusCondition

#: Structs that also read what Kubernetes writes of pods and nodes; less may stand in an object of Covey's.
_NARROWER: Final[dict[type, type[Model]]] = {core.Condition: StatusCondition, core.Meta: ObjectMeta}


@cache
def model_of_struct(struct: type[core.Read]) -> type[Model]:
    """Make the model of what may be written, from the struct by which it is read."""
    if struct in _NARROWER:
        return _NARROWER[struct]
    hints = get_type_hints(struct, include_extras=True)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        annotation, default = _with_models(hints[field.name]), field.default
        if field.required or REQUIRED in getattr(annotation, "__metadata__", ()):
            default = ...
        elif isinstance(default, core.Read):
            annotation, default = annotation | None, None
        fields[field.name] = annotation, default
    model = create_model(struct.__name__, __base__=Model, __doc__=struct.__doc__, **fields)
    model.RULES = struct.RULES
    model.DECLARED_IN = struct.__mro__[: struct.__mro__.index(core.Read)]
    return model


def _with_models(annotation: Any) -> Any:
    """The annotation of a field, each struct in it replaced by its model."""
    if isinstance(annotation, type) and issubclass(annotation, core.Read):
        return model_of_struct(annotation)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Annotated:
            return Annotated[(_with_models(arguments[0]), *arguments[1:])]
        case origin if origin in {Union, types.UnionType}:
            return Union[tuple(map(_with_models, arguments))]  # noqa: UP007
        case origin if origin is tuple:
            return tuple[tuple(map(_with_models, arguments))]  # type: ignore[misc]
    return annotation
