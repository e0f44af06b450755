"""The reference of the API: every field and rule of the models, with an anchor."""

import re

from covey.api.crds import KINDS
from handbook.fields import reference

ROW = re.compile(
    r'^\| (?:<span id="(?P<mark>[^"]*)"></span>)?\[`(?P<name>\w+)`\]\(#(?P<target>[^)]*)\) \|(?P<cells>.*)\|$'
)


def rows() -> dict[str, list[str]]:
    """The cells of every field's row, by the anchor that its name links to."""
    found = [match for line in reference().splitlines() if (match := ROW.match(line.replace("\\|", "/")))]
    return {match["target"]: [cell.strip() for cell in match["cells"].split("|")] for match in found}


def test_every_kind_has_its_part() -> None:
    headings = [line for line in reference().splitlines() if line.startswith("## ")]
    assert [line.split()[1] for line in headings] == [kind.model.__name__ for kind in KINDS]


def test_some_kinds_only() -> None:
    text = reference("ClusterTopology")
    assert "## ClusterTopology" in text
    assert "## Workload" not in text


def test_a_field_has_type_default_and_meaning_with_limits_and_class() -> None:
    kind, default, meaning = rows()["disaggregatedinference.spec.replicas"]
    assert (kind, default) == ("integer", "`1`")
    assert meaning.startswith("Serving units. Each is one whole gang")
    assert "0 to 999" in meaning
    assert "minimum 0" not in meaning
    assert "Default" not in meaning
    assert "maxItems 8" in rows()["disaggregatedinference.spec.proximity"][2]
    assert rows()["disaggregatedinference.spec.rollout.historyLimit"][1] == "`10`"
    assert ">in place<" in meaning
    assert rows()["disaggregatedinference.spec.suspend"][1] == "`false`"
    assert rows()["disaggregatedinference.spec.backend"][0] == "`Auto`, `Extender`, `Kubernetes`, `Volcano`"
    assert ">immutable<" in rows()["disaggregatedinference.spec.backend"][2]
    assert rows()["disaggregatedinference.spec.roles"][:2] == ["list of object", "**required**"]
    assert rows()["disaggregatedinference.spec.roles.update.maxSurge"][0] == "integer or percentage"


def test_a_status_has_no_defaults() -> None:
    assert len(rows()["disaggregatedinference.status.conditions.type"]) == 2


def test_every_link_of_a_field_leads_somewhere_once() -> None:
    found = [one or other for one, other in re.findall(r'<a id="([\w.-]+)"|<span id="([\w.-]+)"', reference())]
    assert len(found) == len(set(found))
    assert rows().keys() <= set(found)


def test_rules_are_listed_where_they_hold_with_their_messages() -> None:
    text = reference()
    assert "| `spec.roles[].minReplicas` | minReplicas is greater than replicas" in text
    assert "| `spec.topology.name` | topology.name is immutable" in text
    assert "| `spec.roles[].template.spec.nodeName` | nodeName is Covey's own" in text
    assert "has(self.minReplicas)" in text


def test_every_rule_of_the_models_is_there() -> None:
    from covey.api.schema import structural  # noqa: PLC0415 - for this test alone

    def messages(node: object) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(messages, node))
        if not isinstance(node, dict):
            return set()
        own = {rule["message"] for rule in node.get("x-kubernetes-validations", ())}
        return own.union(*map(messages, node.values()))

    plain = reference().replace("\\", "").replace("&lt;", "<")
    for kind in KINDS:
        missing = {text for text in messages(structural(kind.model)) if " ".join(text.split()) not in plain}
        assert not missing, kind.model.__name__


def test_a_table_row_is_never_broken_by_its_text() -> None:
    for line in reference().splitlines():
        cells = line.strip().replace("\\|", "").count("|")
        if line.startswith(("| <span", "| [`")):
            assert cells in {4, 5}, line
        if line.startswith("    | `"):
            assert cells == 4, line
