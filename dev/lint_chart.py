"""Lint what the chart makes: with checkov, and with the schemas of every Kubernetes release that Covey supports.

Standard library only; run by ``make lint`` with the directory of the linters, which have an environment of their own.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from localcluster.binaries import ensure_tool

CHART = Path(__file__).resolve().parent.parent / "helm" / "covey"
RELEASES = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
VARIANTS = (
    ("default",),
    ("ha and closed", "--set=replicas=2,networkPolicy.enabled=true"),
    ("existing scheduler", "--set=scheduler.mode=Existing,replicas=2"),
    ("namespaced", "--set=watchNamespaces={team-a}"),
)
#: What checkov would have otherwise, and why it is so.
ACCEPTED = {
    "CKV_K8S_11": "no limit of CPU: a throttled scheduler keeps a whole cluster waiting",
    "CKV_K8S_15": "released images never change under their tag",
    "CKV_K8S_38": "both processes talk to the API server",
    "CKV_K8S_43": "a digest is an option (image.digest); kube-scheduler's follows the cluster's version",
    "CKV_K8S_114": "with a configuration file the flag means nothing, and profiles are behind authorization",
    "CKV_K8S_115": "the kubelet probes kube-scheduler from outside of the pod",
    "CKV2_K8S_6": "an option (networkPolicy.enabled): a cluster's network rules are its owner's",
}


def main(linters: Path) -> int:
    """Returns the number of runs that found something."""
    failed = 0
    for name, *flags in VARIANTS:
        command = [str(ensure_tool("helm")), "template", "covey", str(CHART), "--namespace=covey-system"]
        command += ["--kube-version=1.37.1", "--set=crds.install=false", *flags]
        rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "chart.yaml")
            file.write_text(rendered)
            checkov = [linters / "checkov", "--quiet", "--compact", "--skip-download", "--framework=kubernetes"]
            failed += _run(f"{name}: checkov", [*checkov, f"--file={file}", f"--skip-check={','.join(ACCEPTED)}"])
            for release in RELEASES:
                validate = [linters / "kubernetes-validate", "--strict", "--quiet", f"-k={release}", file]
                failed += _run(f"{name}: schemas of {release}", validate)
    return failed


def _run(name: str, command: list[str | Path]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(f"{name}: {'found something' if done.returncode else 'ok'}")
    if done.returncode:
        print(done.stdout + done.stderr)
    return bool(done.returncode)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).absolute()))
