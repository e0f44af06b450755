"""Many namespaces: every one has its watches, and none waits for another's connection."""

from cluster.workbench import Workbench
from localcluster import Cluster


def test_watches_need_no_connection_of_a_reconcile(cluster: Cluster, namespace: str) -> None:
    others = [f"--namespace=elsewhere-{number}" for number in range(15)]
    try:
        cluster.start_covey("operator", *others, f"--namespace={namespace}")
        bench = Workbench(cluster, namespace)
        bench.create()
        bench.await_pods(6)
        bench.await_condition("Admitted", "False", "Waiting")
    finally:
        cluster.stop_all()
