"""The pinned packages take every Python that Covey says it takes, also the first of a series that distributions keep."""

from __future__ import annotations

import tomllib
from importlib.metadata import distributions

from packaging.specifiers import SpecifierSet

from localcluster.programs import ROOT


def test_what_is_installed_takes_the_oldest_python() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = f"{wanted.removeprefix('>=')}.0"
    takes = {each.name: SpecifierSet(each.metadata["Requires-Python"] or "") for each in distributions()}
    assert not {name: str(versions) for name, versions in takes.items() if not versions.contains(oldest)}
    assert len(takes) > 50
