"""A run asks each row that is not done, gives way where there is no room, and keeps what failed."""

import asyncio
import threading

import httpx
import pyarrow.parquet as pq
import pytest

from app.batch.gateway_way import GatewayAsker
from app.batch.ledger import Ledger
from app.batch.places import Place
from app.batch.results import result_line, write_results
from app.batch.rows import Row
from app.batch.run import BatchRun, GaveWay, RowMeter, RunOptions, Stopped
from app.errors import DeadlineExceeded, EngineFailed, InvalidRequest, Overloaded, RateLimitExceeded, StageUnavailable
from app.metrics import MemoryMetrics

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def rows(count, **body):
    return [Row(number, f"id-{number}", body=HELLO | body) for number in range(count)]


async def run(site, ledger, asked, **options):
    metrics = MemoryMetrics()
    await BatchRun(ledger, RunOptions(**options), RowMeter(metrics)).run(asked, site.asker, asyncio.Event())
    return metrics


async def test_each_row_is_asked_once_in_the_class_batch(site, tmp_path):
    with Ledger(tmp_path) as ledger:
        metrics = await run(site, ledger, rows(10), concurrency=3)
        assert [found.body["object"] for found in ledger.records()] == ["chat.completion"] * 10
        await run(site, ledger, rows(10))
    assert {job.priority for job in site.pipeline.jobs} == {"batch"}
    assert sorted(job.request_id for job in site.pipeline.jobs) == sorted(f"run-{number}" for number in range(10))
    assert metrics.total("baton_batch_rows_total", outcome="answered") == 10
    assert metrics.total("baton_batch_rows_at_work") == 0


async def test_rows_are_read_off_the_loop_that_answers_others(site, tmp_path):
    threads = set()

    def read():
        for row in rows(40):
            threads.add(threading.current_thread())
            yield row

    with Ledger(tmp_path) as ledger:
        await run(site, ledger, read(), concurrency=3)
        assert ledger.done == 40
    assert threading.current_thread() not in threads


async def test_refused_and_bad_rows_are_kept_with_their_error_and_tried_again_on_demand(site, tmp_path):
    asked = [
        *rows(1),
        Row(1, "b", body=HELLO | {"max_tokens": 0}),
        Row(2, "c", body=HELLO | {"model": "none"}),
        Row(3, "d", error=InvalidRequest("Row 4 is no JSON.", "batch")),
    ]
    with Ledger(tmp_path) as ledger:
        await run(site, ledger, asked)
        assert [found.failed for found in ledger.records()] == [False, True, True, True]
        codes = [result_line(found)["error"]["code"] for found in ledger.records(lambda failed: failed)]
        assert codes == ["invalid_request", "model_not_found", "invalid_request"]
        asked[1:3] = [Row(1, "b", body=HELLO), Row(2, "c", body=HELLO)]
        await run(site, ledger, asked, retry_failed=True)
        assert [found.failed for found in ledger.records()] == [False, False, False, True]
    assert len(site.pipeline.jobs) == 3


async def test_an_overloaded_gateway_costs_no_row(site, tmp_path):
    site.pipeline.rescript(fail_before=Overloaded("full", "generator", None, 1))
    with Ledger(tmp_path) as ledger:
        work = asyncio.create_task(run(site, ledger, rows(3)))
        await asyncio.sleep(0.3)
        assert ledger.done == 0
        site.pipeline.rescript(fail_before=None)
        await work
        assert (ledger.done, ledger.failed) == (3, 0)


async def test_a_row_that_the_engine_fails_thrice_is_a_failed_row(site, tmp_path):
    site.pipeline.rescript(fail_before=EngineFailed("It gave up.", "generator"))
    with Ledger(tmp_path) as ledger:
        await run(site, ledger, rows(1))
        (found,) = ledger.records()
    assert (found.status, found.error["code"], found.error["stage"]) == (502, "engine_failed", "generator")
    assert len(site.pipeline.jobs) == 3


async def test_rows_that_wait_behind_others_until_their_deadline_go_on_waiting(site, tmp_path):
    site.pipeline.rescript(fail_before=DeadlineExceeded("It waited.", "generator"))
    with Ledger(tmp_path) as ledger:
        work = asyncio.create_task(run(site, ledger, rows(1)))
        async with asyncio.timeout(10):
            while len(site.pipeline.jobs) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        site.pipeline.rescript(fail_before=None)
        await work
        assert (ledger.done, ledger.failed) == (1, 0)


@pytest.mark.parametrize(("status", "tries"), [(502, 4), (404, 3)])
async def test_what_is_no_baton_fails_no_row_while_a_proxy_waits_for_one(tmp_path, status, tries):
    asked = []

    def answer(request):
        asked.append(request)
        return httpx.Response(200, json={}) if len(asked) == 4 else httpx.Response(status, text="<html>")

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://gateway") as client:
        with Ledger(tmp_path) as ledger:
            batch = BatchRun(ledger, RunOptions(), RowMeter(MemoryMetrics()))
            await batch.run(rows(1), GatewayAsker(client, "batch", "run"), asyncio.Event())
            assert ledger.failed == (status == 404)
    assert len(asked) == tries


async def test_a_run_gives_up_where_no_row_ends_and_loses_nothing(site, tmp_path):
    site.pipeline.rescript(fail_before=Overloaded("full", "generator", None, 1))
    with Ledger(tmp_path) as ledger:
        with pytest.raises(StageUnavailable, match=r"No row was answered for 0\.5 s: full What is done is kept"):
            await run(site, ledger, rows(2), patience_seconds=0.5)
        assert ledger.done == 0


async def test_a_long_retry_after_outlasts_no_patience(site, tmp_path):
    site.pipeline.rescript(fail_before=RateLimitExceeded("Slower.", "gateway", None, 86_400))
    with Ledger(tmp_path) as ledger:
        async with asyncio.timeout(5):
            with pytest.raises(StageUnavailable, match=r"No row was answered for 0\.5 s: Slower\."):
                await run(site, ledger, rows(2), patience_seconds=0.5)


async def test_rows_that_all_wait_for_their_key_s_limits_give_way_where_others_wait(site, tmp_path):
    waiting = False

    async def others_wait():
        return waiting

    site.pipeline.rescript(fail_before=RateLimitExceeded("Slower.", "gateway", None, 1))
    with Ledger(tmp_path) as ledger:
        batch = BatchRun(ledger, RunOptions(), RowMeter(MemoryMetrics()), others_wait=others_wait)
        work = asyncio.create_task(batch.run(rows(2), site.asker, asyncio.Event()))
        await asyncio.sleep(0.2)
        assert not work.done()
        waiting = True
        async with asyncio.timeout(5):
            with pytest.raises(GaveWay):
                await work


async def test_a_run_that_is_stopped_cancels_what_it_asked(site, tmp_path):
    site.pipeline.rescript(delay_seconds=30)
    stop = asyncio.Event()
    with Ledger(tmp_path) as ledger:
        batch = BatchRun(ledger, RunOptions(), RowMeter(MemoryMetrics()))
        work = asyncio.create_task(batch.run(rows(3), site.asker, stop))
        async with asyncio.timeout(5):
            while site.pipeline.running < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        stop.set()
        with pytest.raises(Stopped):
            await work
        assert (ledger.done, site.pipeline.running) == (0, 0)


async def test_the_output_has_a_row_for_each_as_lines_and_as_columns(site, tmp_path):
    asked = [*rows(2), Row(2, "bad", error=InvalidRequest("Row 3 is no JSON.", "batch"))]
    with Ledger(tmp_path / "p") as ledger:
        await run(site, ledger, asked)
        for name in ("out.jsonl", "out.parquet"):
            assert write_results(Place.parse(str(tmp_path / name)), ledger.records()) == 3
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["row"], row["custom_id"], row["status"]) for row in table] == [
        (0, "id-0", 200),
        (1, "id-1", 200),
        (2, "bad", 400),
    ]
    assert table[0]["text"] == "Baton answers from its documents."
    assert (table[2]["text"], table[2]["error_message"]) == (None, "Row 3 is no JSON.")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 3
