"""Create a resource with the official client, watch it become Ready, scale a role as an autoscaler does, delete it.

    python examples/python/lifecycle.py examples/autoscaling/llama.yaml prefill 3

It needs the package `kubernetes`, and takes the current context of your kubeconfig or the service account of its pod.
"""

import argparse
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

Object = dict[str, Any]


class Inference:
    """One DisaggregatedInference, and the RoleScalers of its roles."""

    def __init__(self, api: client.ApiClient, namespace: str, manifest: Object) -> None:
        self._objects: Any = client.CustomObjectsApi(api)
        self._manifest = manifest
        self._name = manifest["metadata"]["name"]
        self._api = {"group": "inference.covey.dev", "version": "v1alpha1", "namespace": namespace}
        self._kind = {**self._api, "plural": "disaggregatedinferences"}

    def create(self) -> None:
        """Create it; what is wrong with it is refused with status 422 and a sentence."""
        self._objects.create_namespaced_custom_object(**self._kind, body=self._manifest)

    def scale(self, role: str, replicas: int) -> None:
        """Write the scale subresource of a role's RoleScaler, as an HPA and KEDA do."""
        scaler = {**self._api, "plural": "rolescalers", "name": f"{self._name}-{role}"}
        self._objects.patch_namespaced_custom_object_scale(**scaler, body={"spec": {"replicas": replicas}})

    def delete(self) -> None:
        """Delete it; all that was made of it goes, too."""
        self._objects.delete_namespaced_custom_object(**self._kind, name=self._name)

    def changes(self, seconds: float = 300) -> Iterator[Object]:
        """Yield it as it is, and again whenever it changes, until it is deleted or the time is over."""
        deadline = time.monotonic() + seconds
        while (left := int(deadline - time.monotonic())) > 0:
            # Watches end: with the API server, with the connection, and when their version is too old (410).
            # Then a list says how things stand, and the next watch goes on from there.
            try:
                if (yield from self._list_and_watch(left)):
                    return
            except HTTPError:
                time.sleep(1)
            except client.ApiException as error:
                if error.status not in {410, 429} and error.status < 500:
                    raise
                time.sleep(1)
        raise TimeoutError(f"{self._name}: not reached in {seconds:.0f} s")

    def _list_and_watch(self, seconds: int) -> Generator[Object, None, bool]:
        """Yield it as ``changes`` does, by one watch; returns whether it is deleted."""
        only = {**self._kind, "field_selector": f"metadata.name={self._name}"}
        found = self._objects.list_namespaced_custom_object(**only, _request_timeout=10)
        yield from found["items"]
        if not found["items"]:
            return True
        only["resource_version"] = found["metadata"]["resourceVersion"]
        # A connection on which nothing comes for longer than the server watches is dead.
        limits = {"timeout_seconds": seconds, "_request_timeout": (10, seconds + 10)}
        for event in watch.Watch().stream(self._objects.list_namespaced_custom_object, **only, **limits):
            if event["type"] == "DELETED":
                return True
            yield event["object"]
        return False


def is_ready(found: Object) -> bool:
    """Whether all that is wanted serves; a condition of an older generation says nothing."""
    conditions = found.get("status", {}).get("conditions", [])
    now = [each for each in conditions if each["observedGeneration"] == found["metadata"]["generation"]]
    return any((each["type"], each["status"]) == ("Ready", "True") for each in now)


def has_ready(found: Object, role: str, replicas: int) -> bool:
    """Whether a role shall have so many replicas, and all of them are Ready."""
    status = next(each for each in found["status"]["roles"] if each["name"] == role)
    return bool(status["replicas"] == status["ready"] == replicas)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("manifest", type=Path, help="a DisaggregatedInference")
    parser.add_argument("role", help="one with scaling.mode: External")
    parser.add_argument("replicas", type=int, help="how many it shall have")
    parser.add_argument("--namespace", default="default")
    options = parser.parse_args()
    config.load_config()
    with client.ApiClient() as api:
        inference = Inference(api, options.namespace, yaml.safe_load(options.manifest.read_text()))
        inference.create()
        print("created")
        found = next(each for each in inference.changes() if is_ready(each))
        print("Ready:", found["status"]["summary"]["ready"])
        inference.scale(options.role, options.replicas)
        found = next(each for each in inference.changes() if has_ready(each, options.role, options.replicas))
        print("scaled:", found["status"]["summary"]["ready"])
        inference.delete()
        for _ in inference.changes():
            pass
        print("deleted")


if __name__ == "__main__":
    main()
