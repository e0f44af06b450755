"""The CustomResourceDefinitions, made from the models; ``crds/`` and the chart hold what ``render`` returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from covey.api import constants, core
from covey.api.groups import CompositePodGroup, PodGroup
from covey.api.inference import DisaggregatedInference
from covey.api.model import Model
from covey.api.scaler import RoleScaler
from covey.api.schema import structural
from covey.api.status import UNSEEN
from covey.api.structs import model_of_struct
from covey.api.workload import Workload
from covey.api.yaml_dialect import dump


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``. ``wide``: shown with ``-o wide`` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def as_schema(self) -> dict[str, Any]:
        """The column as the API server stores it: without the priority 0, which it would leave out."""
        return {
            "name": self.name,
            "type": self.type,
            "jsonPath": self.path,
            "description": self.description,
        } | ({"priority": 1} if self.wide else {})


@dataclass(frozen=True, slots=True)
class CustomResource:
    """The parts of a CRD besides the schema."""

    model: type[Model]
    group: str
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    namespaced: bool = True
    #: Paths of wanted replicas, of present ones and of the pods' selector.
    scale: tuple[str, str, str] | None = None
    #: What the API server shows as the status before anybody has written one.
    unseen: Mapping[str, Any] | None = None

    @property
    def file_name(self) -> str:
        """The place of the CRD under ``crds/``."""
        return f"{self.group}_{self.plural}.yaml"


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "Time since creation.", type="date")


def _group_columns(minimum: str, desired: str) -> tuple[Column, ...]:
    """The same for pods and for groups: how many there shall be, and how far they have come.

    Args:
        minimum: the field of a gang's policy.
        desired: the field of the spec.
    """
    return (
        Column("Minimum", f".spec.schedulingPolicy.gang.{minimum}", "Members without which none starts.", "integer"),
        Column("Desired", f".spec.{desired}", "Members that there shall be.", "integer"),
        Column("Placed", ".status.admitted", "Members that have their nodes reserved.", "integer"),
        Column("Bound", ".status.scheduled", "Members that are bound.", "integer"),
        Column("Admitted", _condition(constants.ADMITTED), "Whether the minimum has its nodes reserved."),
        Column("Scheduled", _condition(constants.SCHEDULED), "Whether the minimum is bound."),
        Column("Parent", ".spec.parentCompositePodGroupName", "The group above.", wide=True),
        Column("Reason", _condition(constants.ADMITTED, "reason"), "The reason of Admitted.", wide=True),
        Column("Message", _condition(constants.ADMITTED, "message"), "The message of Admitted.", wide=True),
        _AGE,
    )


KINDS: Final = (
    CustomResource(
        DisaggregatedInference,
        constants.INFERENCE_GROUP,
        "disaggregatedinferences",
        "dinf",
        (
            Column("Status", ".status.summary.status", "The state in one word."),
            Column("Ready", ".status.summary.ready", "Ready and wanted replicas of each role."),
            Column("Units", ".status.summary.units", "Units that have their minimum Ready, and wanted ones."),
            Column("Admitted", _condition(constants.ADMITTED), "Whether every unit is admitted."),
            Column("Updated", ".status.summary.updated", "Replicas of the newest revision, and wanted ones."),
            Column("Domain", ".status.summary.domain", "The domain that the units reached.", wide=True),
            Column("Message", ".status.summary.message", "Why it is not further.", wide=True),
            _AGE,
        ),
        scale=(".spec.replicas", ".status.units", ".status.selector"),
        unseen={"observedGeneration": UNSEEN},
    ),
    CustomResource(
        RoleScaler,
        constants.INFERENCE_GROUP,
        "rolescalers",
        "rscale",
        (
            Column("Desired", ".spec.replicas", "Replicas that are asked for, over all units.", type="integer"),
            Column("Current", ".status.replicas", "Replicas that exist, over all units.", type="integer"),
            Column(
                "Committed",
                ".status.conditions[?(@.type=='Committed')].reason",
                "Of roles that are scaled together: whether their targets are in force, and why not.",
            ),
            _AGE,
        ),
        scale=(".spec.replicas", ".status.replicas", ".status.selector"),
    ),
    CustomResource(
        model_of_struct(Workload),
        constants.SCHEDULING_GROUP,
        "workloads",
        "cvwl",
        (
            Column("Controller", ".spec.controllerRef.name", "The object that it belongs to."),
            _AGE,
        ),
    ),
    CustomResource(
        model_of_struct(CompositePodGroup),
        constants.SCHEDULING_GROUP,
        "compositepodgroups",
        "cvcpg",
        _group_columns("minGroupCount", "desiredGroupCount"),
    ),
    CustomResource(
        model_of_struct(PodGroup),
        constants.SCHEDULING_GROUP,
        "podgroups",
        "cvpg",
        _group_columns("minCount", "desiredCount"),
    ),
    CustomResource(
        model_of_struct(core.ClusterTopology),
        constants.SCHEDULING_GROUP,
        "clustertopologies",
        "ctopo",
        (
            Column("Broadest", ".spec.levels[0].name", "The broadest level."),
            Column("Finest", ".spec.levels[-1:].name", "The finest level."),
            Column(
                "Default",
                r".metadata.annotations.scheduling\.covey\.dev/default",
                "Whether resources that name no topology use it.",
            ),
            _AGE,
        ),
        namespaced=False,
    ),
    CustomResource(
        model_of_struct(core.Queue),
        constants.SCHEDULING_GROUP,
        "queues",
        "cvq",
        (
            Column("Cohort", ".spec.cohort", "The queues that lend to each other."),
            Column(
                "Resources", ".status.summary.resources", "The resources that are counted, in the order of the amounts."
            ),
            Column("Used", ".status.summary.used", "What its units have, of what it has by right."),
            Column("Borrowed", ".status.summary.borrowed", "What of that is beyond nominal."),
            Column("Lent", ".status.summary.lent", "What of nominal others have."),
            Column("Waiting", ".status.summary.waiting", "What pods without nodes ask for."),
            Column("Weight", ".spec.weight", "Of two that borrow, the larger one may have more.", "integer", wide=True),
            _AGE,
        ),
        namespaced=False,
    ),
    CustomResource(
        model_of_struct(core.Preemption),
        constants.SCHEDULING_GROUP,
        "preemptions",
        "cvpre",
        (
            Column("For", ".spec.beneficiary.name", "The root group that others give way to."),
            Column("Reason", ".spec.reason", "Why they have to."),
            Column("From", ".spec.summary", "Who gives way."),
            Column("Gone", ".status.progress", "How many of those that are needed are gone."),
            Column("Outcome", ".status.outcome", "How it ended; empty while it is under way."),
            Column("Deadline", ".status.deadline", "When it is given up, if it comes no nearer.", wide=True),
            Column("Message", ".status.message", "How it ended, in a sentence.", wide=True),
            _AGE,
        ),
    ),
)


def definition(kind: CustomResource) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    schema = structural(kind.model)
    if kind.unseen is not None:
        schema["properties"]["status"]["default"] = dict(kind.unseen)
    name = kind.model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            "labels": {"app.kubernetes.io/name": "covey", "app.kubernetes.io/part-of": "covey"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": name,
                "listKind": f"{name}List",
                "plural": kind.plural,
                "singular": name.lower(),
                "shortNames": [kind.short_name],
                "categories": ["covey"],
            },
            "versions": [
                {
                    "name": constants.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": _subresources(kind, has_status="status" in schema["properties"]),
                    "additionalPrinterColumns": [column.as_schema() for column in kind.columns],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _subresources(kind: CustomResource, *, has_status: bool) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}} if has_status else {}
    if kind.scale:
        wanted, present, selector = kind.scale
        subresources["scale"] = {
            "specReplicasPath": wanted,
            "statusReplicasPath": present,
            "labelSelectorPath": selector,
        }
    return subresources


def render() -> dict[str, str]:
    """Every CRD as YAML, by file name; the same text for the same models."""
    return {kind.file_name: dump([definition(kind)]) for kind in KINDS}


def write(directory: Path) -> None:
    """Write every CRD into a directory; other files there stay."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in render().items():
        (directory / name).write_text(text, encoding="utf-8")
