"""Strategic merge patches of pod templates."""

from typing import Any

import pytest

from covey.convert.fields import ConversionError
from covey.convert.strategic_merge import apply_merge

BASE = {
    "metadata": {"labels": {"app": "a", "tier": "b"}},
    "spec": {
        "nodeSelector": {"zone": "1"},
        "tolerations": [{"key": "x"}],
        "containers": [
            {"name": "main", "image": "i:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}]},
            {"name": "side", "image": "s:1"},
        ],
    },
}


@pytest.mark.parametrize(
    ("patch", "path", "wanted"),
    [
        ({"metadata": {"labels": {"app": "c"}}}, "metadata.labels", {"app": "c", "tier": "b"}),
        ({"metadata": {"labels": {"app": None}}}, "metadata.labels", {"tier": "b"}),
        ({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}, "metadata.labels", {"x": "y"}),
        ({"spec": {"tolerations": [{"key": "y"}]}}, "spec.tolerations", [{"key": "y"}]),
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork", True),
        (
            {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}},
            "spec.containers",
            BASE["spec"]["containers"][:1],  # type: ignore[index]  # a literal of many types
        ),
    ],
)
def test_a_patch_merges_maps_and_replaces_other_lists(patch: Any, path: str, wanted: Any) -> None:
    found: Any = apply_merge(BASE, patch, "patch")
    for step in path.split("."):
        found = found[step]
    assert found == wanted


def test_containers_and_variables_are_merged_by_name() -> None:
    more = [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    found = apply_merge(
        BASE, {"spec": {"containers": [{"name": "main", "args": ["c"], "env": more}, {"name": "new"}]}}, "p"
    )
    main, side, new = found["spec"]["containers"]
    assert (main["image"], main["args"]) == ("i:1", ["c"])
    assert main["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]
    assert (side, new) == ({"name": "side", "image": "s:1"}, {"name": "new"})


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ("text", "p"),
        ({"spec": {"$retainKeys": ["containers"]}}, "p.spec.$retainKeys"),
        ({"spec": {"containers": [{"image": "i"}]}}, "p.spec.containers[0]"),
    ],
)
def test_a_patch_that_is_none_is_refused_by_its_path(patch: Any, path: str) -> None:
    with pytest.raises(ConversionError) as refused:
        apply_merge(BASE, patch, "p")
    assert refused.value.path == path
