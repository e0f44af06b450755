"""Every source manifest of ``examples/migrate`` becomes a resource that runs, as the how-tos tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.files import covey
from cluster.serving import Serving
from examples.conftest import Apply, await_ready
from examples.files import named, of_kind, pods_of
from examples.test_planned import MIGRATED


@pytest.mark.usefixtures("racks")
@pytest.mark.parametrize("file", MIGRATED, ids=named)
def test_what_it_becomes_runs(apply: Apply, serving: Serving, tmp_path: Path, file: Path) -> None:
    done = covey("convert", "-f", file)
    assert done.exit_code == 0, done.stderr
    converted = tmp_path / file.name
    converted.write_text(done.stdout)
    apply(converted)
    await_ready(serving)
    [inference] = of_kind(converted, "DisaggregatedInference")
    assert len(serving.bound()) == pods_of(inference["spec"])
