"""The official client, as far as Covey uses it: its configuration, and nothing of its half a million lines of models.

Its module of kubeconfigs asks for the user's home when it is imported, and the import fails for a user who has none, as
in a container: https://github.com/kubernetes-client/python/blob/v37.0.2/kubernetes/aio/config/kube_config.py#L38
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
