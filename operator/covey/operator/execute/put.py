"""Writes objects other than pods: groups, Services, ControllerRevisions, RoleScalers, budgets and images in place.

Nothing is adopted that is not ours, but for what a restored backup has without an owner and that is as it would be made
(``ObjectWriter.claim``). The budget of a namespace goes where no resource needs it any more. Of a RoleScaler
``spec.replicas`` is written once, when one is created; after that it is not Covey's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from covey.api import constants as names
from covey.api import core
from covey.api.inference import BackendName
from covey.backends import BACKENDS, Owned
from covey.backends.seam import FieldManager
from covey.compile import Owner, pod_budget, type_of
from covey.kube import resources
from covey.kube.client import Client, Ignored
from covey.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, Retryable
from covey.kube.go_json import go_json
from covey.kube.resources import POD_DISRUPTION_BUDGETS, PODS, ROLE_SCALERS, SERVICES, Resource
from covey.model import image_update, podstate
from covey.observability.logging import get_logger
from covey.operator.model.actions import Annotate, DeleteObject, Mark, Object, PutScaler, UpdateInPlace
from covey.operator.model.capacity import ASK_KINDS
from covey.operator.model.objects import (
    ANNOTATION_COMPLETED,
    ANNOTATION_FAILED,
    BY_TYPE,
    CONTROLLER_REVISIONS,
    ControllerRevision,
    StoredScaler,
    group_kinds,
)
from covey.operator.model.observed import SHARED_BUDGET, Observed, is_ours, is_shared
from covey.operator.model.problem import REASON_NAME_TAKEN, Blocked, Problem
from covey.operator.objects.drift import has_drifted

_log = get_logger(__name__)


class BudgetEnder:
    """Looks at one namespace. No resource owns its budget, so nobody else would delete it.

    A resource that comes at this moment makes it again once the watch shows that it has gone.

    Args:
        client: to the API server.
        find: the budget of a namespace.
        is_needed: whether a resource there needs it, or may need it.
    """

    def __init__(self, client: Client, find: Callable[[str], Owned | None], is_needed: Callable[[str], bool]) -> None:
        self._client = client
        self._find = find
        self._is_needed = is_needed

    async def __call__(self, namespace: str) -> None:
        """Delete the budget of a namespace, if nobody needs it.

        Raises:
            KubeError: that failed; it has to be tried again.
        """
        budget = self._find(namespace)
        if budget is None or budget.metadata.deletion_timestamp is not None or self._is_needed(namespace):
            return
        try:
            await self._client.delete(POD_DISRUPTION_BUDGETS, pod_budget.NAME, namespace, uid=budget.metadata.uid)
        except (NotFound, Conflict):
            return
        _log.info("budget of namespace deleted", namespace=namespace)


S = TypeVar("S", Owned, ControllerRevision, StoredScaler)

#: Seconds until the cache has what it was found not to have.
_BEHIND: Final = 0.1
Stored = Owned | ControllerRevision | StoredScaler
#: Requests for nodes are of their time, and a budget of a former release says nothing of its own.
_NEVER_ADOPTED: Final = frozenset((*ASK_KINDS, POD_DISRUPTION_BUDGETS))
#: Kinds of a resource's objects that every cluster with Covey has.
_EVERYWHERE: Final = (PODS, SERVICES, CONTROLLER_REVISIONS, ROLE_SCALERS, *group_kinds((BackendName.EXTENDER,)))


class ObjectWriter:
    """Writes objects of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        observed: the snapshot that the plan was made from.
        stored: called with the type of every object that was created, and the object.
        applied: called with what was applied, the object as it was before, and the API server's answer.
    """

    def __init__(
        self,
        client: Client,
        owner: Owner,
        observed: Observed,
        stored: Callable[[str, Stored], None],
        applied: Callable[[Object, Owned, Owned], None] = lambda *_: None,
    ) -> None:
        self._applied = applied
        self._client = client
        self._owner = owner
        self._stored = stored
        #: Pods whose deletion would take something from who serves; and those of nobody, which others may be counted with.
        self._has_pods = next(observed.every_pod(), None) is not None
        self._has_orphans = observed.has_orphans
        self._objects: dict[tuple[str, str], Owned] = {**observed.objects, **observed.shared}
        self._revisions = {stored.name: stored.uid for stored in observed.revisions}

    def uid_of(self, anchor: tuple[str, str]) -> str:
        """The UID of an object that is there, by type and name."""
        return self._objects[anchor].metadata.uid

    async def store(self, body: Object) -> None:
        """Store the ControllerRevision in force. One of this name may be there, of a spec that has come back.

        Its data cannot be changed: the API server compares them byte by byte.
        """
        record = body
        body = {**body, "data": go_json(body["data"])}
        kind, name = type_of(body), body["metadata"]["name"]
        uid = self._revisions.get(name)
        if uid is None:
            try:
                created = await self._client.create(BY_TYPE[kind], body, type=ControllerRevision)
            except AlreadyExists:
                uid = (await self.claim(record, ControllerRevision)).metadata.uid
            else:
                self._stored(kind, created)
                return
        metadata = {"uid": uid, "labels": body["metadata"]["labels"], "annotations": body["metadata"]["annotations"]}
        patch = {"metadata": metadata, "revision": body["revision"]}
        await self._patch_record(name, uid, patch)

    async def mark(self, action: Mark) -> None:
        """Mark a ControllerRevision, or take its mark away."""
        marks = {ANNOTATION_FAILED: action.failed, ANNOTATION_COMPLETED: action.completed}
        annotations = {key: "true" if holds else None for key, holds in marks.items()}
        patch = {"metadata": {"uid": action.uid, "annotations": annotations}}
        try:
            await self._patch_record(action.name, action.uid, patch)
        except (NotFound, Conflict):
            _log.debug("revision has gone", revision=action.name)

    async def _patch_record(self, name: str, uid: str, patch: Mapping[str, Any]) -> None:
        try:
            await self._client.merge_patch(CONTROLLER_REVISIONS, name, self._owner.namespace, patch, type=Ignored)
        except Invalid as error:
            # A policy may have the same code: what it guards is not deleted.
            if not _is_of_data(error):
                raise
            await self._replace_record(name, uid, patch)

    async def _replace_record(self, name: str, uid: str, patch: Mapping[str, Any]) -> None:
        """Recreate a ControllerRevision whose patch is refused: its data were not written as Go writes them."""
        namespace = self._owner.namespace
        record: dict[str, Any] = await self._client.get(CONTROLLER_REVISIONS, name, namespace)
        if record["metadata"]["uid"] != uid:
            return
        labels, annotations = ({**record["metadata"].get(key, {})} for key in ("labels", "annotations"))
        labels |= patch["metadata"].get("labels", {})
        annotations |= patch["metadata"].get("annotations", {})
        kept = {field: record["metadata"][field] for field in ("name", "namespace", "ownerReferences")}
        body = {
            "metadata": {
                **kept,
                "labels": labels,
                "annotations": {k: v for k, v in annotations.items() if v is not None},
            },
            "revision": patch.get("revision", record["revision"]),
            "data": go_json(record["data"]),
        }
        await self._client.delete(CONTROLLER_REVISIONS, name, namespace, uid=uid)
        created = await self._client.create(CONTROLLER_REVISIONS, body, namespace, type=ControllerRevision)
        self._stored(CONTROLLER_REVISIONS.type, created)
        _log.info("record made anew", revision=name)

    async def annotate(self, action: Annotate) -> None:
        """Annotate this incarnation of an object; a pod is one, too."""
        kind = resources.PODS if action.type == resources.PODS.type else BY_TYPE[action.type]
        # A UID in a patch is a precondition.
        patch = {"metadata": {"uid": action.uid, "annotations": dict(action.annotations)}}
        try:
            await self._client.merge_patch(
                kind, action.name, self._owner.namespace, patch, manager=names.MANAGER_OPERATOR_NOTES, type=Ignored
            )
        except (NotFound, Conflict):
            _log.debug("object has gone", kind=action.type, object=action.name)

    async def apply(self, body: Object) -> None:
        """Bring an object up to date; create it where there is none, which costs half of what applying does."""
        kind, name = type_of(body), body["metadata"]["name"]
        stored = self._objects.get((kind, name))
        if stored is None:
            try:
                created = await self._client.create(BY_TYPE[kind], body, type=Owned)
            except AlreadyExists:
                stored = await self.claim(body, Owned)
            else:
                self._objects[kind, name] = created
                self._stored(kind, created)
                return
            self._objects[kind, name] = stored
            if not has_drifted(body, stored):
                # The cache is behind: an earlier pass, or process, has created it.
                self._stored(kind, stored)
                return
        try:
            await self._take_over(kind, stored)
        except Invalid:
            # It has changed since it was seen.
            await self._take_over(kind, await self.claim(body, Owned))
        applied = await self._client.apply(BY_TYPE[kind], body, manager=names.MANAGER_OPERATOR, type=Owned)
        self._objects[kind, name] = applied
        self._applied(body, stored, applied)

    async def _take_over(self, kind: str, stored: Owned) -> None:
        """Let the fields that were written by creating an object count as applied.

        To the API server they are two managers of one name. A field that both own stays when applying gives it up.
        """
        managers = stored.metadata.managed_fields
        created, applied = FieldManager(names.MANAGER_OPERATOR, "Update"), FieldManager(names.MANAGER_OPERATOR, "Apply")
        if created not in managers or applied in managers:
            return
        at = f"/metadata/managedFields/{managers.index(created)}"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": stored.metadata.uid},
            {"op": "test", "path": f"{at}/manager", "value": created.manager},
            {"op": "test", "path": f"{at}/operation", "value": created.operation},
            {"op": "replace", "path": f"{at}/operation", "value": applied.operation},
        ]
        name = stored.metadata.name
        try:
            await self._client.json_patch(BY_TYPE[kind], name, self._owner.namespace, operations, type=Ignored)
        except NotFound:
            raise Retryable(_BEHIND, f"{BY_TYPE[kind].kind} {name} has gone") from None

    async def claim(self, body: Object, projection: type[S]) -> S:
        """Read the object that has a name already: it is ours, or Covey's for the whole namespace, or adopted.

        Adopted is what has no owner and this resource's label, as backups are restored, where it differs from ``body`` in
        nothing but the owner: whoever may create such an object makes Covey keep up nothing that it would not make itself.
        Nothing is adopted beside pods without an owner, which orphan deletion leaves: they would be members of the gang.

        Raises:
            Blocked: it is somebody else's, or not as it would be made.
            Retryable: it has gone or was changed meanwhile.
        """
        kind, name = type_of(body), body["metadata"]["name"]
        resource = BY_TYPE[kind]
        try:
            stored = await self._client.get(resource, name, self._owner.namespace, type=projection)
        except NotFound:
            raise Retryable(_BEHIND, f"{resource.kind} {name} is on its way out") from None
        if is_ours(stored.metadata, self._owner) or is_shared(kind, stored.metadata):
            return stored
        owner = stored.metadata.controller
        if owner is not None and (owner.kind, owner.name) == ("DisaggregatedInference", self._owner.name):
            waits = f"waits until {resource.kind} {name} of the former resource of this name is deleted"
            raise Blocked(Problem(names.REASON_WAITING, waits, retry=True))
        remedy = "is not Covey's: delete it, or give this resource another name"
        if owner is None and stored.metadata.label(names.LABEL_INFERENCE) == self._owner.name:
            if await self._is_as_made(resource, body, stored):
                return await self._adopt(resource, stored)
            remedy = (
                "has no owner: it was left by a resource of this name that was deleted with --cascade=orphan, or restored from "
                "a backup, and is adopted only where it is as this resource makes it and no pods are left beside it: run "
                f"`{self._removal(resource, name)}`, or give this resource another name"
            )
        if (kind, name) == SHARED_BUDGET:
            remedy = "is not Covey's: delete it; until then pods of gangs may be evicted here"
        if owner is not None and owner.kind == "DisaggregatedInference":
            remedy = f"belongs to DisaggregatedInference {owner.name}: give this resource or a role of it another name"
        raise Blocked(Problem(REASON_NAME_TAKEN, f"{resource.kind} {name} exists and {remedy}", retry=True))

    async def _is_as_made(self, resource: Resource, body: Object, stored: Stored) -> bool:
        """Tell whether a stored object without an owner is as ``body`` would be stored, but for the owner."""
        metadata = stored.metadata
        if (
            self._has_orphans
            or resource in _NEVER_ADOPTED
            or metadata.owner_references
            or metadata.deletion_timestamp is not None
            or _of_covey(metadata.labels) != _of_covey(body["metadata"]["labels"])
            or not body["metadata"]["labels"].items() <= (metadata.labels or {}).items()
        ):
            return False
        if isinstance(stored, ControllerRevision):
            return bool(stored.data == body["data"])
        if isinstance(stored, StoredScaler):
            # The replicas are not Covey's, and the backup has those that an autoscaler asked for last.
            return {**stored.spec, "replicas": 0} == {**body["spec"], "replicas": 0}
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
            {"op": "replace", "path": "/spec", "value": body["spec"]},
        ]
        try:
            # The API server writes out its defaults, and keeps what it has allocated.
            made = await self._client.json_patch(
                resource, metadata.name, self._owner.namespace, operations, dry_run=True, type=Owned
            )
        except (NotFound, Conflict, Invalid):
            # It has changed meanwhile, or is of a kind whose spec nobody may change.
            return False
        return made.spec == stored.spec

    async def _adopt(self, resource: Resource, stored: S) -> S:
        """Become the owner of an object. Covey's notes on it, and who wrote its fields, are of a former life.

        What is no longer wanted of it would stay for ever if somebody else managed it as well.
        """
        metadata = stored.metadata
        notes = _of_covey(metadata.annotations)
        kept = {key: value for key, value in (metadata.annotations or {}).items() if key not in notes}
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
            {"op": "add", "path": "/metadata/ownerReferences", "value": [self._owner.reference()]},
            {"op": "add", "path": "/metadata/annotations", "value": kept},
        ]
        for position, manager in enumerate(metadata.managed_fields):
            if not manager.subresource:
                at = f"/metadata/managedFields/{position}"
                operations += [
                    {"op": "replace", "path": f"{at}/manager", "value": names.MANAGER_OPERATOR},
                    {"op": "replace", "path": f"{at}/operation", "value": "Update"},
                ]
        try:
            adopted = await self._client.json_patch(
                resource, metadata.name, self._owner.namespace, operations, type=type(stored)
            )
        except (NotFound, Conflict, Invalid):
            raise Retryable(_BEHIND, f"{resource.kind} {metadata.name} was changed meanwhile") from None
        self._stored(resource.type, adopted)
        _log.info("object without an owner adopted", kind=resource.type, object=metadata.name)
        return adopted

    def _removal(self, resource: Resource, name: str) -> str:
        """The command that removes an object in the way; and all that was left with it, where no pod of ours would go."""
        if self._has_pods:
            return f"kubectl delete -n {self._owner.namespace} {_argument(resource)} {name}"
        backend = next((pairs.kinds() for pairs in BACKENDS if resource in pairs.kinds()), ())
        kinds = dict.fromkeys((*_EVERYWHERE, *backend, resource))
        label = f"{names.LABEL_INFERENCE}={self._owner.name}"
        return f"kubectl delete -n {self._owner.namespace} {','.join(map(_argument, kinds))} -l {label}"

    async def delete(self, action: DeleteObject) -> None:
        """Delete one incarnation."""
        try:
            await self._client.delete(BY_TYPE[action.type], action.name, self._owner.namespace, uid=action.uid)
        except (NotFound, Conflict):
            return
        _log.info("object deleted", kind=action.type, object=action.name)


def _argument(resource: Resource) -> str:
    """A kind as kubectl takes it, whatever else is called so."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _of_covey(backend: Mapping[str, str] | None) -> dict[str, str]:
    """The labels or annotations of Covey's own keys."""
    return {key: value for key, value in (backend or {}).items() if key.partition("/")[0].endswith("covey.dev")}


def _is_of_data(error: Invalid) -> bool:
    """Tell whether a patch was refused as a change of ``data`` (``ValidateControllerRevisionUpdate``)."""
    return any(isinstance(cause, dict) and cause.get("field") == "data" for cause in error.details.get("causes") or ())


async def put_images(client: Client, action: UpdateInPlace) -> core.Pod | None:
    """Change images and revision of a pod in one request; return the pod as written, None where nothing was.

    What its containers run now is read first: the watch may be behind the kubelet. So may what it was chosen by: a pod
    that has begun to serve meanwhile is left, since the budget may need it.

    Raises:
        NotFound: it is gone.
        ApiError: the change was denied.
    """
    metadata = action.pod.metadata
    stored = await client.get(resources.PODS, metadata.name, metadata.namespace, type=image_update.Stored)
    idle = not podstate.is_ready(action.pod)
    if _is_settled(stored, action) or (idle and _serves(stored)):
        return None
    operations = image_update.operations(stored, action.images, action.revision, action.at, as_is=idle)
    try:
        return await client.json_patch(resources.PODS, metadata.name, metadata.namespace, operations, type=core.Pod)
    except Invalid:
        # A test that fails has no code of its own. A pod that was changed meanwhile comes back here.
        again = await client.get(resources.PODS, metadata.name, metadata.namespace, type=image_update.Stored)
        if again.metadata.resource_version != stored.metadata.resource_version:
            return None
        raise


def _is_settled(stored: image_update.Stored, action: UpdateInPlace) -> bool:
    """Tell whether a pod takes no images: another incarnation, on its way out, or done already."""
    metadata = stored.metadata
    return (
        metadata.uid != action.pod.metadata.uid
        or metadata.deletion_timestamp is not None
        or metadata.label(names.LABEL_REVISION) == action.revision
    )


def _serves(stored: image_update.Stored) -> bool:
    return podstate.is_ready(core.Pod(stored.metadata, stored.spec, stored.status))


class ScalerWriter:
    """Writes the RoleScalers of one resource.

    Args:
        client: to the API server.
        owner: the resource.
        writer: finds out whose object has a name.
        stored: called with the type and every RoleScaler that was created.
    """

    def __init__(
        self, client: Client, owner: Owner, writer: ObjectWriter, stored: Callable[[str, StoredScaler], None]
    ) -> None:
        self._client = client
        self._owner = owner
        self._writer = writer
        self._stored = stored

    async def apply(self, action: PutScaler) -> None:
        """Bring a RoleScaler up to date, but for the replicas that it asks for.

        Raises:
            Blocked: one of this name belongs to somebody else.
            KubeError: a request failed.
        """
        scaler = action.stored or await self._create(action)
        metadata = {"name": action.name, "namespace": self._owner.namespace}
        if action.patch:
            # A merge patch makes this process the owner of the fields that it names, and of no other.
            patch = {**action.patch, "metadata": {**action.patch.get("metadata", {}), "uid": scaler.metadata.uid}}
            await self._client.merge_patch(ROLE_SCALERS, action.name, self._owner.namespace, patch, type=Ignored)
        if action.status:
            body = {key: action.body[key] for key in ("apiVersion", "kind")}
            await self._client.apply(
                ROLE_SCALERS,
                {**body, "metadata": metadata, "status": action.status},
                manager=names.MANAGER_OPERATOR_STATUS,
                subresource="status",
                type=Ignored,
            )

    async def _create(self, action: PutScaler) -> StoredScaler:
        try:
            created = await self._client.create(ROLE_SCALERS, action.body, type=StoredScaler)
        except AlreadyExists:
            # Ours, when it has lost the label by which it is found.
            scaler = await self._writer.claim(action.body, StoredScaler)
            labels = {"metadata": {"uid": scaler.metadata.uid, "labels": action.body["metadata"]["labels"]}}
            await self._client.merge_patch(ROLE_SCALERS, action.name, self._owner.namespace, labels, type=Ignored)
            return scaler
        self._stored(ROLE_SCALERS.type, created)
        return created
