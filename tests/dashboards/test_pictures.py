"""Pictures of boards, from a Prometheus that is made up here."""

import json

import httpx
import matplotlib as mpl
import pytest
from matplotlib import pyplot

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


def drawn(kind, *lines, unit="none"):
    """Return a figure and its axes with one panel on them."""
    figure, axes = pyplot.subplots(layout="constrained")
    panel = {"title": "One", "type": kind, "fieldConfig": {"defaults": {"unit": unit}}}
    pictures.draw(axes, panel, [(f"line {place}", list(enumerate(values))) for place, values in enumerate(lines)])
    figure.draw_without_rendering()
    return figure, axes


@pytest.mark.parametrize(("values", "bottom"), [((-3, 2), -3), ((1, 2), 0)])
def test_nothing_below_zero_is_cut_off(values, bottom):
    figure, axes = drawn("timeseries", values)
    low = axes.get_ylim()[0]
    pyplot.close(figure)
    assert low == 0 if bottom == 0 else low <= bottom


def test_the_legend_lies_below_the_curves_within_the_picture():
    figure, axes = drawn("timeseries", *[(0, place) for place in range(13)])
    legend = axes.get_legend().get_window_extent()
    pyplot.close(figure)
    assert legend.y1 <= axes.get_window_extent().y0
    assert legend.y0 >= 0
    assert len(axes.get_legend().get_texts()) == 13


def test_what_grafana_shows_as_numbers_is_the_last_number():
    figure, axes = drawn("stat", (-1, -2.5), (0.5, 0.25), unit="percentunit")
    texts = [text.get_text() for text in axes.texts]
    pyplot.close(figure)
    assert texts == ["line 0", "-2.50 %", "line 1", "0.25 %"]
    assert not axes.lines


def test_every_waiver_names_a_query_of_a_board():
    found = {
        (uid, panel["title"], target["refId"])
        for uid, board in names.boards().items()
        for panel in names.panels(board)
        for target in panel["targets"]
    }
    assert pictures.WAIVED.keys() - found == set()
