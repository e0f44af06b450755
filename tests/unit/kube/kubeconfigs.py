"""Kubeconfigs for tests, in an environment that names none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from authority import Authority


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def config(name: str = "dev", user: Mapping[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}:1/", **cluster}}],
        "users": [{"name": name, "user": dict(user or {"token": "secret"})}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "team"}}],
    }


def write(path: Path, content: Mapping[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content)))
    return str(path)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    for file, content in zip(files, Authority().issue("covey"), strict=True):
        file.write_bytes(content)
    return files
