"""kube-scheduler's own gang scheduling (``scheduling.k8s.io``), one dialect for each form of its API."""

from covey.backends.kubernetes.embedded import Embedded
from covey.backends.kubernetes.flat import Flat
from covey.backends.kubernetes.hierarchical import Hierarchical

__all__ = ["Embedded", "Flat", "Hierarchical"]
