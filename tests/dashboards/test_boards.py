"""The committed boards: readable, alike, and linked."""

import itertools
import re

import promql_parser
import pytest

from tests.dashboards import names

BOARDS = names.boards()
OF_THE_RELEASE = {(name, names.VARIABLES[f"${name}"]) for name in ("namespace", "job")}
OF_A_POD = {("exported_namespace", names.VARIABLES["$namespace"])}
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS.keys())


@each_board
def test_every_panel_has_a_title_a_unit_and_a_sentence(board):
    titles = [panel["title"] for panel in names.panels(board)]
    assert len(titles) == len(set(titles))
    for panel in names.panels(board):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]
        assert panel["datasource"]["uid"] == "$datasource"


@each_board
def test_variables_are_the_same_everywhere(board):
    found = [(variable["name"], variable["type"]) for variable in board["templating"]["list"]]
    assert found == [("datasource", "datasource"), ("namespace", "query"), ("job", "query"), ("variant", "query")]


@each_board
def test_every_query_is_limited_to_the_release(board):
    for panel in names.panels(board):
        for target in panel["targets"]:
            for selector in names.selectors(promql_parser.parse(names.filled(target["expr"]))):
                exact = {
                    (matcher.name, matcher.value)
                    for matcher in selector.matchers.matchers
                    if matcher.op == promql_parser.MatchOp.Equal
                }
                # Another exporter's target has a namespace and a job of its own, and it knows of no release.
                other = (selector.name or "").startswith("DCGM_")
                wanted = OF_A_POD if other else OF_THE_RELEASE
                assert wanted <= exact, f"{panel['title']}: {selector.name}"


@each_board
def test_panels_lie_beside_each_other_and_no_row_is_empty(board):
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    kinds = [panel["type"] for panel in board["panels"]]
    assert kinds[0] == "row"
    assert kinds[-1] != "row"
    assert all((one, two) != ("row", "row") for one, two in itertools.pairwise(kinds))


@each_board
def test_boards_link_to_each_other_and_to_the_alerts(board):
    kinds = {link["type"]: link for link in board["links"]}
    assert kinds["dashboards"]["tags"] == ["baton"] == board["tags"]
    assert "/alerting" in kinds["link"]["url"]


def test_every_alert_names_a_board_that_is_there():
    urls = [rule["annotations"]["dashboard_url"] for rule in names.rules() if "alert" in rule]
    named = {re.match(r"/d/([\w-]+)\?", url)[1] for url in urls}
    assert named <= BOARDS.keys()


def test_the_pipeline_has_a_row_for_each_stage():
    rows = [panel["title"] for panel in BOARDS["baton-pipeline"]["panels"] if panel["type"] == "row"]
    assert rows[2:] == ["gateway", "guardrail", "retriever", "assembler", "generator", "postprocessor"]


def test_every_board_says_what_serve_knows_of_its_deployments():
    """The pipeline's board has Serve's times beside each stage's."""
    for uid in BOARDS.keys() - {"baton-pipeline"}:
        rows = [panel["title"] for panel in BOARDS[uid]["panels"] if panel["type"] == "row"]
        asked = " ".join(target["expr"] for panel in names.panels(BOARDS[uid]) for target in panel["targets"])
        assert "Serve" in rows, uid
        for metric in ("deployment_error_counter", "deployment_request_counter", "deployment_processing_latency_ms"):
            assert f"ray_serve_{metric}" in asked, uid
