"""What a running Baton writes: JSON with the same keys everywhere, with a request's id and trace, without its text."""

import json
import subprocess
import sys
import time

import pytest

from app.config.local import ROOT

KEYS = {"asctime", "levelname", "message"}
QUESTION = "Which stage would a purple zyzzyva meet first in Baton?"
TRACE = "9bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def folder(baton):
    return baton.logs


def lines(files):
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def accesses(folder, request_id):
    """Return the lines of a request's end. Serve stamps its id and route on whatever is logged during it."""
    return [
        entry
        for entry in lines(folder.glob("serve/replica_pipeline_gateway_*.log"))
        if entry.get("request_id") == request_id and entry.get("outcome")
    ]


def ask(baton, request_id):
    headers = {"x-request-id": request_id, "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    body = {"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": QUESTION}]}
    assert baton.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200


@pytest.mark.timeout(300)
def test_a_request_is_one_line_with_its_facts(baton, folder):
    ask(baton, "logged-1")
    baton.wait_for(lambda: accesses(folder, "logged-1"), 10, "the line of the request")
    (line,) = accesses(folder, "logged-1")
    expected = {
        "levelname": "INFO",
        "stage": "gateway",
        "application": "pipeline",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "outcome": "answered",
        "profile": "default",
        "priority": "interactive",
        "trace_id": TRACE,
    }
    assert {key: line.get(key) for key in expected} == expected
    assert line["milliseconds"] > 0
    assert line["replica"]


@pytest.mark.timeout(300)
def test_serve_and_ray_write_the_same_shape(baton, folder):
    for files in (folder.glob("serve/*.log"), [folder / "gcs_server.out", folder / "raylet.out"]):
        entries = lines(files)
        assert entries
        assert [entry for entry in entries if not entry.keys() >= KEYS] == []


@pytest.mark.timeout(300)
def test_no_file_quotes_a_question(baton, folder):
    ask(baton, "logged-2")
    baton.wait_for(lambda: accesses(folder, "logged-2"), 10, "the line of the request")
    quoting = [path.name for path in folder.rglob("*") if path.is_file() and b"zyzzyva" in path.read_bytes()]
    assert quoting == []


@pytest.mark.timeout(300)
def test_the_level_changes_in_place(baton, folder):
    def replicas():
        return {path.name for path in folder.glob("serve/replica_*.log")}

    def level(name):
        def change(raw):
            raw["settings"]["logs"] = {"level": name}

        return change

    before = replicas()
    baton.deploy(level("WARNING"))
    try:
        time.sleep(3)
        ask(baton, "logged-3")
        time.sleep(2)
        assert accesses(folder, "logged-3") == []
    finally:
        baton.deploy()

    def heard():
        ask(baton, "logged-4")
        return accesses(folder, "logged-4")

    baton.wait_for(heard, 30, "lines are written again")
    assert replicas() == before


@pytest.mark.timeout(120)
def test_the_terminals_board_shows_the_running_pipeline(baton):
    baton.wait_for(lambda: baton.scrape("ray_baton_stage_milliseconds_count") > 0, 60, "metrics of a stage")
    command = [sys.executable, "-m", "app.ops.top", "--once", "--url", baton.metrics]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if line.strip()}
    for name in ("guardrail", "retriever", "assembler", "generator", "postprocessor", "smollm2"):
        assert any(character.isdigit() for character in rows[name]), name
    assert "shared" in rows["retriever-postprocessor"]
    assert "GiB of" in shown.stdout
    assert "\x1b" not in shown.stdout
