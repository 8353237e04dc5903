"""Pictures of boards, from a Prometheus that is made up here."""

import json

import httpx
import matplotlib as mpl
import pytest

from dashboards import pictures
from tests.dashboards import names

END = 10_000.0


def prometheus(answer):
    """Return a client of a Prometheus that answers each query with the rows of ``answer(expression)``."""

    def reply(request):
        return httpx.Response(200, json={"status": "success", "data": {"result": answer(request.url.params["query"])}})

    return httpx.Client(base_url="http://prometheus", transport=httpx.MockTransport(reply))


def row(*values, **labels):
    return {
        "metric": labels,
        "values": [[END - place, str(value)] for place, value in enumerate(reversed(values))][::-1],
    }


@pytest.fixture(autouse=True)
def _without_a_display():
    mpl.use("Agg")


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Put a board of two panels in the place of the committed ones."""
    panels = [
        {
            "title": title,
            "type": "timeseries",
            "fieldConfig": {"defaults": {"unit": "none"}},
            "targets": [{"expr": expr, "legendFormat": expr, "refId": letter} for letter, expr in queries.items()],
        }
        for title, queries in {"Two": {"A": "here", "B": "gone"}, "One": {"A": "nan"}}.items()
    ]
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"title": "Made up", "panels": panels}))
    monkeypatch.setattr(pictures, "board_path", lambda uid: path)


@pytest.mark.usefixtures("board")
def test_a_query_without_a_line_is_named_though_its_panel_has_another(tmp_path):
    rows = {"here": [row(1, 2)], "gone": [], "nan": [row("NaN", "+Inf")]}
    empty = pictures.picture(prometheus(rows.__getitem__), "made-up", 10, END, tmp_path)
    assert empty == [("made-up", "Two", "B"), ("made-up", "One", "A")]
    assert (tmp_path / "made-up.png").stat().st_size > 0


def test_every_waiver_names_a_query_of_a_board():
    found = {
        (uid, panel["title"], target["refId"])
        for uid, board in names.boards().items()
        for panel in names.panels(board)
        for target in panel["targets"]
    }
    assert pictures.WAIVED.keys() - found == set()
