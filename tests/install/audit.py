"""What Covey's service accounts have asked of the API server, from its audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from install.chart import NAMESPACE

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{NAMESPACE}"]}, {"level": "None"}],
}


@dataclass(frozen=True)
class Request:
    """One request: who, with which program, what, and the answer's code and message."""

    account: str
    agent: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int
    message: str = ""


@dataclass(frozen=True)
class Audit:
    """The log of one API server."""

    log: Path
    flags: tuple[str, ...]
    _pardoned: list[range] = field(default_factory=list)

    @classmethod
    def prepare(cls, directory: Path) -> Audit:
        """The log and the API server's flags that write it."""
        policy, log = directory / "policy.yaml", directory / "audit.log"
        policy.write_text(yaml.safe_dump(_POLICY))
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking-strict")
        return cls(log, flags)

    @contextmanager
    def pardon(self) -> Iterator[None]:
        """Leave out what is asked within the block: Helm takes rights away before the processes end."""
        start = len(self._lines())
        yield
        self._pardoned.append(range(start, len(self._lines())))

    def requests(self) -> Iterator[Request]:
        """Every request so far. Watches stand there once they have ended."""
        for number, line in enumerate(self._lines()):
            if any(number in each for each in self._pardoned):
                continue
            event: dict[str, Any] = json.loads(line)
            at = event.get("objectRef", {})
            subresource = f"/{at['subresource']}" if "subresource" in at else ""
            yield Request(
                event["user"]["username"].rpartition(":")[2],
                event.get("userAgent", ""),
                event["verb"],
                at.get("apiGroup", ""),
                f"{at.get('resource', '')}{subresource}",
                at.get("namespace", ""),
                at.get("name", ""),
                event["responseStatus"]["code"],
                event["responseStatus"].get("message", ""),
            )

    def _lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []
