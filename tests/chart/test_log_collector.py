"""What the shipped collector makes of lines: its expressions, run by the engine whose dialect it speaks (RE2)."""

import re

import pytest
import re2
import yaml

from scripts.helm_render import CHART

CONFIG = yaml.safe_load((CHART / "files" / "log-collector.yaml").read_text())
OPERATORS = CONFIG["receivers"]["file_log"]["operators"]
PLACE = {"filename": "head.py", "lineno": "362"}

#: A line as one of the node's programs wrote it → the fields that it has afterwards.
LINES = {
    "2026-11-30 11:48:29,242\tINFO head.py:362 -- Available modules": {
        **PLACE,
        "asctime": "2026-11-30 11:48:29,242",
        "levelname": "INFO",
        "message": "Available modules",
    },
    "2026-11-30 11:48:29,242\tERROR head.py:362 -- Failed\nTraceback (most recent call last):\n  File": {
        **PLACE,
        "levelname": "ERROR",
        "message": "Failed\nTraceback (most recent call last):\n  File",
    },
    'INFO 2026-11-30 11:48:58,687 serve 29598 -- Started Serve in namespace "serve".': {
        "levelname": "INFO",
        "component_name": "serve",
        "process": "29598",
        "message": 'Started Serve in namespace "serve".',
    },
    "(EngineCore pid=31547) WARNING 11-30 11:51:07 [head.py:362] The model runner": {
        **PLACE,
        "process": "EngineCore pid=31547",
        "levelname": "WARNING",
        "message": "The model runner",
    },
    "INFO 11-30 11:51:07 [head.py:362] Starting": {**PLACE, "levelname": "INFO", "message": "Starting"},
    "/site-packages/torch.py:138: FutureWarning: deprecated": None,
}


def condition(operator):
    """The expression of an operator's ``if: body matches "…"``."""
    found = re.search(r'body matches "(.*)"', operator["if"])
    return found[1].replace("\\\\", "\\")


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_text_gets_fields(line):
    parsers = [operator for operator in OPERATORS if operator["type"] == "regex_parser"]
    taken = [operator for operator in parsers if re2.search(condition(operator), line)]
    expected = LINES[line]
    assert len(taken) == (expected is not None)
    for operator in taken:
        fields = re2.search(operator["regex"], line).groupdict()
        assert expected.items() <= fields.items()


@pytest.mark.parametrize("line", [*LINES, '{"asctime": "2026-11-30"}', "[W1130 11:51:03 utils.cpp:68] Warning"])
def test_an_entry_begins_where_a_program_begins_one(line):
    start = CONFIG["receivers"]["file_log"]["multiline"]["line_start_pattern"]
    first, *rest = line.split("\n")
    assert bool(re2.search(start, first)) == (not first.startswith("/"))
    assert not any(re2.search(start, more) for more in rest)


def test_names_at_the_top_of_a_workers_file_are_dropped():
    (found,) = [operator for operator in OPERATORS if operator["type"] == "filter"]
    expression = re.search(r'body matches "(.*)"', found["expr"])[1]
    assert re2.search(expression, ":job_id:02000000")
    assert not re2.search(expression, '{"message": ":job_id:"}')
