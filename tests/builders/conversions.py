"""Parts of an answer of ``convert``, as its tests compare them."""

from typing import Any

from covey.convert import Converted


def roles(found: Converted) -> dict[str, Any]:
    """The roles of the resource by name."""
    return {each["name"]: each for each in found.body["spec"]["roles"]}


def said(found: Converted) -> dict[str, str]:
    """The remarks by the path that they are about."""
    return {remark.path: f"{remark.what} {remark.instead}" for remark in found.remarks}
