"""What queries are held against comes from the versions that are installed: an upgrade asks for a new scrape."""

import re

import pytest
import yaml

from tests.dashboards import names
from tests.dashboards.collect_scrape import condensed, heading

INSTALLED = names.installed()
ANEW = "run `python -m tests.dashboards.collect_scrape` (docs/boards.md) and mend what it shows"


def test_both_are_installed():
    assert INSTALLED.keys() == {"ray", "vllm"}


def test_the_scrape_is_of_the_installed_versions():
    page = names.SCRAPE.read_text()
    named = dict(re.findall(r"(ray|vllm) ([0-9.]*[0-9])", page.splitlines()[0]))
    assert named == INSTALLED, ANEW
    assert set(re.findall(r'[{,]Version="([^"]*)"', page)) == {INSTALLED["ray"]}, ANEW


def test_a_new_scrape_says_its_versions_and_keeps_what_any_page_had():
    early = '# TYPE a counter\na_total{WorkerId="1"} 3\n# TYPE key gauge\nkey{key="k"} 4.1e+09\n'
    late = '# TYPE a counter\na_total{WorkerId="2"} 9\n'
    rows = ["# TYPE a counter", 'a_total{WorkerId="x"} 1.0', "# TYPE key gauge", 'key{key="k"} 1.0']
    assert condensed("\n".join((late, early))).splitlines() == rows
    assert heading().strip() == names.SCRAPE.read_text().splitlines()[0]


@pytest.mark.parametrize("source", [found["source"] for found in yaml.safe_load(names.ELSEWHERE.read_text())])
def test_what_the_scrape_cannot_show_was_read_in_the_installed_versions(source):
    for name, version in re.findall(r"\b(Ray|vLLM) ([0-9.]*[0-9])", source):
        assert version == INSTALLED[name.lower()], f"look it up again in {name} {INSTALLED[name.lower()]}: {source}"
