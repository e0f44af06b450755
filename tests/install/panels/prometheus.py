"""A real Prometheus on loopback, with the chart's rules, that scrapes what it is given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from install.panels.dashboard import RULES
from localcluster import Process, free_port
from localcluster.binaries import ensure_tool
from localcluster.ports import address
from localcluster.probe import answers

Result = dict[str, Any]


@dataclass(frozen=True)
class Scraped:
    """One process to scrape: ``host:port``, and the labels that discovery would give its series."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Prometheus:
    """A Prometheus, a context manager.

    Args:
        directory: where its files lie; must exist.
        job: name of the scrape job, which becomes the label ``job``.
        scraped: what it scrapes.
        seconds: from one scrape, and one evaluation of the rules, to the next.
        honor_labels: keep the labels of the series where they are also those of the process.
    """

    def __init__(
        self, directory: Path, job: str, scraped: Sequence[Scraped], *, seconds: float, honor_labels: bool = True
    ) -> None:
        for folder in ("logs", "run"):
            (directory / folder).mkdir(exist_ok=True)
        targets = [{"targets": [each.address], "labels": dict(each.labels)} for each in scraped]
        content = {
            "global": {"scrape_interval": f"{seconds:g}s", "evaluation_interval": f"{seconds:g}s"},
            "scrape_configs": [{"job_name": job, "honor_labels": honor_labels, "static_configs": targets}],
            "rule_files": [str(RULES)],
        }
        config = directory / "prometheus.yaml"
        config.write_text(yaml.safe_dump(content))
        listen = address(free_port())
        self.url = f"http://{listen}"
        command = [str(ensure_tool("prometheus")), f"--config.file={config}", f"--web.listen-address={listen}"]
        command.append(f"--storage.tsdb.path={directory / 'data'}")
        self._process = Process(
            "prometheus", command, directory=directory, ready=lambda: answers(f"{self.url}/-/ready")
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def ask(self, query: str, time: float | None = None) -> list[Result]:
        """The value of a query, now or at a time (seconds since the epoch)."""
        return self._results("query", query=query, **({} if time is None else {"time": time}))

    def ask_range(self, query: str, start: float, end: float, step: float) -> list[Result]:
        """The values of a query from one time to another."""
        return self._results("query_range", query=query, start=start, end=end, step=step)

    def _results(self, path: str, **parameters: str | float) -> list[Result]:
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}") as answer:
            found: list[Result] = json.load(answer)["data"]["result"]
        return found
