"""The backends with the versions that they are tried on: the columns of the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from covey.api.inference import Backend
from covey.backends import BACKENDS
from localcluster import Cluster, native_groups


@dataclass(frozen=True)
class Column:
    """A backend on the version of what places its pods.

    ``rest`` is how many seconds without any change of a pod mean that its scheduler has nothing more to do,
    ``patience`` how many mean so where more was wanted.
    """

    backend: Backend
    version: str
    rest: float
    patience: float

    @property
    def title(self) -> str:
        """The head of the column."""
        return f"{self.backend} {self.version}"

    @property
    def is_there(self) -> bool:
        """Whether this Covey has the backend."""
        return self.backend in {backend.name for backend in BACKENDS.values()}

    @contextlib.contextmanager
    def running(self) -> Iterator[Cluster]:
        """A cluster with everything that places the pods of this backend, and Covey's operator."""
        match self.backend:
            case Backend.VOLCANO:
                with Cluster(volcano=True) as cluster:
                    cluster.start_volcano()
                    cluster.start_covey("operator")
                    yield cluster
            case Backend.KUBERNETES:
                with Cluster(kubernetes=self.version, gates=native_groups(self.version)) as cluster:
                    cluster.start_scheduler()
                    cluster.start_covey("operator")
                    yield cluster
            case _:
                with Cluster(kubernetes=self.version) as cluster:
                    cluster.start_all()
                    yield cluster


EXTENDER: Final = Column(Backend.EXTENDER, "1.37", rest=1.5, patience=15)
EXTENDER_OLDEST: Final = Column(Backend.EXTENDER, "1.30", rest=1.5, patience=15)
#: kube-scheduler waits up to 10 s before it tries again what did not fit.
KUBERNETES_1_37: Final = Column(Backend.KUBERNETES, "1.37", rest=3, patience=15)
KUBERNETES_1_36: Final = Column(Backend.KUBERNETES, "1.36", rest=3, patience=15)
KUBERNETES_1_35: Final = Column(Backend.KUBERNETES, "1.35", rest=3, patience=15)
#: Volcano's scheduler looks once a second.
VOLCANO: Final = Column(Backend.VOLCANO, "1.14", rest=3, patience=15)
COLUMNS: Final = (EXTENDER, EXTENDER_OLDEST, KUBERNETES_1_37, KUBERNETES_1_36, KUBERNETES_1_35, VOLCANO)
