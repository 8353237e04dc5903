"""One renderer for all tests: the chart is loaded once."""

import pytest

from scripts.helm_render import Renderer


@pytest.fixture(scope="session")
def chart() -> Renderer:
    return Renderer()
