"""Batches on running pipelines: a run that is killed in the middle goes on, and every row ends exactly once."""

import json
import os
import re
import signal
import subprocess
import sys

import httpx
import openai
import pytest

from tests.app.baton import ROOT, START_SECONDS, Baton
from tests.app.fake_cluster import PORT, running

ROWS = 2000
PAGE = (ROOT / "docs" / "batch.md").read_text("utf-8")


def write_rows(path, count, **body):
    lines = ({"custom_id": f"question-{number}", "prompt": f"Tell me of {number}.", **body} for number in range(count))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def command(url, source, target, *more):
    return [sys.executable, "-m", "app.ops.batch", str(source), str(target), "--url", url, *more]


def batch(*arguments):
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=300)


def done_rows(target):
    log = target.with_name(target.name + ".progress") / "done.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kill_in_the_middle(url, source, target, middle):
    """Start a run and kill it, without a word, once so many rows are done."""
    process = subprocess.Popen(command(url, source, target), cwd=ROOT, stderr=subprocess.PIPE)
    try:
        Baton.wait_for(lambda: done_rows(target) >= middle or process.poll() is not None, 200, "half of the rows")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    return done_rows(target)


def results(target):
    return [json.loads(line) for line in target.read_text().splitlines()]


@pytest.fixture(scope="module")
def site(models, tmp_path_factory):
    data = tmp_path_factory.mktemp("batch")
    (data / "models").symlink_to(models)

    def in_the_gateway(raw):
        for name in ("guardrail", "retriever", "assembler", "postprocessor"):
            raw["pipeline"]["stages"][name] = {"placement": "gateway"}

        raw["settings"]["batches"] = {"folder": str(data / "batches"), "concurrency": 4}

    with running(data) as found:
        # Slow enough that a gateway which dies has rows left: 4 at once are 40 in a second.
        found.deploy({"words": ["word"], "seconds_per_token": 0.1, "max_ongoing_requests": 64}, in_the_gateway)
        yield found


@pytest.mark.timeout(START_SECONDS)
def test_2000_rows_survive_a_kill_with_each_row_exactly_once(site, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_rows(source, ROWS, max_tokens=1)
    kept = kill_in_the_middle(site.cluster.url, source, target, ROWS // 2)
    assert ROWS // 2 <= kept < ROWS
    assert not target.exists()
    done = batch(site.cluster.url, source, target)
    assert done.returncode == 0, done.stderr
    print(f"\nkilled after {kept} rows; then {done.stdout.strip()}")
    found = results(target)
    assert [row["custom_id"] for row in found] == [f"question-{number}" for number in range(ROWS)]
    assert {row["response"]["status_code"] for row in found} == {200}
    log = [
        json.loads(line)["row"] for line in (tmp_path / "out.jsonl.progress" / "done.jsonl").read_text().splitlines()
    ]
    assert sorted(log) == list(range(ROWS))
    assert f"{ROWS}/{ROWS} rows, 0 failed in this run" in done.stdout


@pytest.mark.timeout(START_SECONDS)
def test_bad_rows_stop_nothing_and_a_changed_input_is_refused(site, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text('{"prompt": "a", "max_tokens": 2}\n{broken\n{"prompt": "b", "max_tokens": 99999999}\n')
    done = batch(site.cluster.url, source, target)
    assert done.returncode == 1, done.stderr
    assert "3 rows, 2 failed" in done.stdout
    source.write_text('{"prompt": "a", "max_tokens": 2}\n')
    refused = batch(site.cluster.url, source, target)
    assert refused.returncode == 2
    assert "holds the progress of another batch (its input differs)" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.timeout(START_SECONDS)
def test_openai_s_client_runs_a_batch_over_the_death_of_its_gateway(site, tmp_path):
    count = 300
    turn = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": turn}
    rows = [json.dumps({"custom_id": f"q{number}", **line}) for number in range(count)]
    client = openai.OpenAI(base_url=f"{site.cluster.url}/v1", api_key="none", max_retries=10)
    with client:
        file = client.files.create(file=("rows.jsonl", "\n".join(rows).encode()), purpose="batch")
        made = client.batches.create(input_file_id=file.id, endpoint=line["url"], completion_window="24h")

        def completed(least):
            counts = client.batches.retrieve(made.id).request_counts
            return counts is not None and counts.completed >= least

        Baton.wait_for(lambda: completed(count // 4), 60, "a quarter of the rows")
        assert not completed(count * 3 // 4)
        site.kill_one("gateway")
        Baton.wait_for(lambda: client.batches.retrieve(made.id).status == "completed", 120, "the end of the batch")
        done = client.batches.retrieve(made.id)
        answers = [json.loads(found) for found in client.files.content(done.output_file_id).text.splitlines()]
    assert [found["custom_id"] for found in answers] == [f"q{number}" for number in range(count)]
    assert (done.request_counts.failed, done.error_file_id) == (0, None)
    # Of the gateway that went on: what a process counted since its last report dies with it.
    page = f"http://127.0.0.1:{PORT + 1}/metrics"
    for name in ("ray_baton_batch_rows_total", "ray_baton_batch_rows_at_work"):
        Baton.wait_for(lambda name=name: name in httpx.get(page, timeout=20).text, 60, name)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("language", ["sh", "python"])
def test_what_the_page_shows_is_run(site, language, tmp_path):
    (shown,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    shown = shown.replace("http://127.0.0.1:8000", site.cluster.url).replace(".baton/answers", f"{tmp_path}/answers")
    command = [sys.executable, "-c", shown] if language == "python" else ["sh", "-c", shown]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert ("3 rows, 0 failed" if language == "sh" else "completed BatchRequestCounts(completed=2") in done.stdout
