"""A real Kubernetes control plane on one machine, for tests, benchmarks, the demo and ``make cluster``."""

from localcluster.api import request, sentence_of, status_of
from localcluster.background import Background, concurrently
from localcluster.binaries import BuildError
from localcluster.cluster import Cluster
from localcluster.components import NATIVE_GROUPS, Gates, native_groups
from localcluster.nodes import Nodes
from localcluster.ports import free_port
from localcluster.process import PortTakenError, Process, ProcessError
from localcluster.troubles import TROUBLES
from localcluster.waiting import NotReachedError, eventually
from localcluster.watch import Recording

__all__ = [
    "NATIVE_GROUPS",
    "TROUBLES",
    "Background",
    "BuildError",
    "Cluster",
    "Gates",
    "Nodes",
    "NotReachedError",
    "PortTakenError",
    "Process",
    "ProcessError",
    "Recording",
    "concurrently",
    "eventually",
    "free_port",
    "native_groups",
    "request",
    "sentence_of",
    "status_of",
]
