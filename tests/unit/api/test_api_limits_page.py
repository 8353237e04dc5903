"""docs/api.md names limits that there are, with the values that they have."""

import re
from pathlib import Path

from pydantic.alias_generators import to_camel

from app.config.gateway import LimitsConfig
from app.ingestion import documents

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8")


def shown(value):
    if value >= 2**20:
        return f"{value / 2**20:g} MiB"
    return f"{value / 2**10:g} KiB" if value > 10_000 else f"{value:,.0f}"


def test_limits_have_the_names_and_values_that_are_told():
    values = {to_camel(name): value for name, value in LimitsConfig().model_dump().items()}
    told = re.findall(r"^\| .+ \| (.*`\w+`.*) \| (.+) \|$", PAGE.partition("## Search")[0], re.M)
    assert len(told) > 6
    for names, numbers in told:
        found = [shown(values[name]) for name in re.findall(r"`(\w+)`", names)]
        assert re.sub(r" s$", "", re.sub(r" s(?=[,;])", "", numbers)).replace("; ", ", ") == ", ".join(found), names


def test_limits_of_documents_are_those_that_are_told():
    assert f"| text | {shown(documents.MAX_TEXT_BYTES)} " in PAGE
    assert f"| {documents.MAX_ID_CHARS}; {documents.MAX_SOURCE_CHARS:,} characters |" in PAGE
    told = f"| {documents.MAX_METADATA_KEYS}, {documents.MAX_KEY_CHARS}, {documents.MAX_TEXT_CHARS:,} |"
    assert told in PAGE
    assert "from -2^53 to 2^53" in PAGE
    assert documents.MAX_NUMBER == 2**53
