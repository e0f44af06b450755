from covey.api.crds import KINDS
from covey.api.model import FieldClass
from covey.api.reference import reference


def rows() -> dict[str, list[str]]:
    """The cells of every field's row, by path; of the kind that comes first where several have the field."""
    found: dict[str, list[str]] = {}
    for line in reference().splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "/").strip("|").split("|")]
        if line.startswith("| `"):
            found.setdefault(cells[0].strip("`"), cells[1:])
    return found


def test_every_kind_has_its_part() -> None:
    headings = [line for line in reference().splitlines() if line.startswith("## ")]
    assert headings == [f"## {kind.model.__name__}" for kind in KINDS]


def test_a_field_has_type_default_class_and_meaning() -> None:
    assert rows()["spec.replicas"] == [
        "integer",
        "`1`",
        "live",
        "Serving units. Each is one whole gang of all roles and is admitted on its own. 0 to 999. Default: 1.",
    ]
    assert rows()["spec.suspend"][1] == "`false`"
    assert rows()["spec.backend"][0] == "`Auto` / `Extender` / `Kubernetes` / `Volcano`"
    assert rows()["spec.roles[].update.maxSurge"][0] == "integer or percentage"
    assert rows()["spec.roles"][0] == "list of object"


def test_every_class_occurs() -> None:
    classes = {cells[2] for path, cells in rows().items() if path.startswith("spec")}
    assert classes == {*FieldClass, ""}


def test_rules_are_listed_with_their_places() -> None:
    lines = reference().splitlines()
    assert any(line.startswith("- `spec.roles[].minReplicas`: minReplicas is greater than replicas") for line in lines)
    assert any(line.startswith("- `spec.topology.name`: topology.name is immutable") for line in lines)
    assert any(line.startswith("- `spec.roles[].template.spec.nodeName`: nodeName is Covey's own") for line in lines)


def test_a_table_row_is_never_broken_by_its_text() -> None:
    for line in reference().splitlines():
        if line.startswith("| `spec"):
            assert line.replace("\\|", "").count("|") == 6, line
