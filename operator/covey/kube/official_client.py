"""The official client, as far as Covey uses it: its configuration, and nothing of its half a million lines of models.

Its module of kubeconfigs asks for the user's home when it is imported, and the import fails for a user who has none, as
in a container: https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L38
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any


@contextmanager
def _with_a_home() -> Iterator[None]:
    """Set the home directory to ``/``, as container runtimes do, where none is set; afterwards it is unset again."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/"
        try:
            yield
        finally:
            del os.environ["HOME"]
    else:
        yield


def _put_off_synchronous_half() -> None:
    """Let ``kubernetes/__init__.py`` run when something of it is asked for, not when ``kubernetes.aio`` is imported.

    It imports the synchronous half (requests, oauthlib), which takes twice as long as all that Covey needs.
    """
    spec = find_spec("kubernetes")
    if "kubernetes" in sys.modules or spec is None or spec.loader is None:
        return
    package, run = module_from_spec(spec), spec.loader.exec_module

    def load(name: str) -> Any:
        if name.startswith("__") or f"kubernetes.{name}" in sys.modules:  # ``kubernetes.aio`` while it is imported
            raise AttributeError(name)
        del package.__getattr__
        run(package)
        return getattr(package, name)

    package.__getattr__ = load  # type: ignore[method-assign]
    sys.modules["kubernetes"] = package


_put_off_synchronous_half()
with _with_a_home():
    from kubernetes.aio.client.configuration import Configuration
    from kubernetes.aio.client.rest import RESTClientObject
    from kubernetes.aio.config.config_exception import ConfigException
    from kubernetes.aio.config.dateutil import parse_rfc3339
    from kubernetes.aio.config.exec_provider import ExecProvider
    from kubernetes.aio.config.incluster_config import InClusterConfigLoader
    from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

__all__ = [
    "ConfigException",
    "ConfigNode",
    "Configuration",
    "ExecProvider",
    "InClusterConfigLoader",
    "KubeConfigLoader",
    "KubeConfigMerger",
    "RESTClientObject",
    "parse_rfc3339",
]
