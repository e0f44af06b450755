"""The backends with the versions that they are tried on: the columns of the table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from covey.api.inference import BackendName
from covey.backends import BACKENDS
from localcluster import Cluster, native_groups
from localcluster.binaries import WHOLE_1_38
from localcluster.programs import ROOT, scheduler_config


@dataclass(frozen=True)
class Column:
    """A backend on the version of what places its pods.

    ``rest`` is how many seconds without any change of a pod mean that its scheduler has nothing more to do,
    ``patience`` how many mean so where more was wanted.
    """

    backend: BackendName
    version: str
    rest: float
    patience: float

    @property
    def title(self) -> str:
        """The head of the column."""
        return f"{self.backend} {self.version}"

    @property
    def dialect(self) -> str:
        """Which form of its API the backend is recorded to use there; only Kubernetes' own has several."""
        preempts = self.version == "1.36"  # native_groups turns WorkloadAwarePreemption on
        return f"{self.version}-preemption" if preempts else self.version

    @property
    def is_there(self) -> bool:
        """Whether this Covey has the backend."""
        return any(each.name is self.backend and each.dialect in {"", self.dialect} for each in BACKENDS)

    @contextlib.contextmanager
    def running(self) -> Iterator[Cluster]:
        """A cluster with everything that places the pods of this backend, and the operator under its rights and policies."""
        with self._cluster() as cluster:
            rights = ROOT / "manifests" / "components" / str(self.backend).lower() / "rights.yaml"
            cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", *([rights] if rights.exists() else []))
            cluster.install_account_policies()
            cluster.apply((ROOT / "examples" / "topology.yaml").read_text())
            match self.backend:
                case BackendName.VOLCANO:
                    cluster.start_volcano()
                case BackendName.KUBERNETES:
                    cluster.start_scheduler()
                case _:
                    scheduler = cluster.start_covey("scheduler")
                    cluster.start_scheduler(scheduler_config(scheduler))
            cluster.start_covey("operator", f"--backends={self.backend}")
            yield cluster
            assert not cluster.account_denials()

    def _cluster(self) -> Cluster:
        match self.backend:
            case BackendName.VOLCANO:
                return Cluster(volcano=True)
            case BackendName.KUBERNETES:
                return Cluster(kubernetes=self.version, gates=native_groups(self.version))
            case _:
                return Cluster(kubernetes=self.version)


EXTENDER: Final = Column(BackendName.EXTENDER, "1.37", rest=1.5, patience=30)
EXTENDER_OLDEST: Final = Column(BackendName.EXTENDER, "1.30", rest=1.5, patience=30)
#: kube-scheduler waits up to 10 s before it tries again what did not fit.
KUBERNETES_1_37: Final = Column(BackendName.KUBERNETES, "1.37", rest=2, patience=30)
KUBERNETES_1_36: Final = Column(BackendName.KUBERNETES, "1.36", rest=2, patience=30)
KUBERNETES_1_35: Final = Column(BackendName.KUBERNETES, "1.35", rest=2, patience=30)
#: Volcano's scheduler looks once a second.
VOLCANO: Final = Column(BackendName.VOLCANO, "1.14", rest=2.5, patience=30)
#: With kube-scheduler alone of 1.38, before API server 1.37, until all of it can be built.
EXTENDER_1_38: Final = Column(BackendName.EXTENDER, "1.38", rest=1.5, patience=30)
KUBERNETES_1_38: Final = Column(BackendName.KUBERNETES, "1.38", rest=2, patience=30)
#: Columns of 1.38 in the table: both, once it can be built.
NEXT: Final = (EXTENDER_1_38, KUBERNETES_1_38) if WHOLE_1_38 else ()
COLUMNS: Final = (*NEXT, EXTENDER, EXTENDER_OLDEST, KUBERNETES_1_37, KUBERNETES_1_36, KUBERNETES_1_35, VOLCANO)
