"""Files and batches with OpenAI's client: from the upload to the answers, per key, over restarts of the gateway."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import httpx
import openai
import pytest
from batch_site import Gateway, eventually, keys_of, lines, made, rows_of, until, working
from gateway_site import SETTINGS

from app.batch import course
from app.batch.ledger import Ledger, Record
from app.batch.store import Batches, owner_of, read_json, write_json
from app.config.gateway import GatewayConfig
from app.errors import EngineFailed, RateLimitExceeded


async def test_a_batch_goes_from_upload_to_answers_and_errors(tmp_path: Any) -> None:
    async with working(tmp_path, concurrency=2) as gateway:
        client = gateway.client()
        content = lines(5) + b"{broken\n" + lines(1, max_tokens=0).replace(b"q0", b"zero")
        batch = await made(client, content, metadata={"job": "nightly"})
        assert (batch.status, batch.object, batch.metadata) == ("validating", "batch", {"job": "nightly"})
        done = await until(client, batch.id, "completed")
        counts = done.request_counts
        assert (counts.total, counts.completed, counts.failed) == (7, 5, 2)
        answers, errors = await rows_of(client, done.output_file_id), await rows_of(client, done.error_file_id)
        assert [row["custom_id"] for row in answers] == [f"q{number}" for number in range(5)]
        assert {row["response"]["body"]["object"] for row in answers} == {"chat.completion"}
        assert [(row["custom_id"], row["error"]["code"]) for row in errors] == [
            ("row-5", "invalid_request"),
            ("zero", "invalid_request"),
        ]
        assert {job.priority for job in gateway.pipeline.jobs} == {"batch"}
        assert [found.id async for found in client.batches.list()] == [batch.id]
        listed = [(file.filename, file.purpose) async for file in client.files.list()]
        assert ("rows.jsonl", "batch") in listed
        assert len(listed) == 3
        assert gateway.metrics.total("baton_batch_rows_total", outcome="failed") == 2


async def test_a_file_can_be_read_and_deleted(tmp_path: Any) -> None:
    client = Gateway(tmp_path).client()
    file = await client.files.create(file=("rows.jsonl", lines(2)), purpose="batch")
    assert (file.bytes, file.status) == (len(lines(2)), "processed")
    assert (await client.files.retrieve(file.id)).filename == "rows.jsonl"
    for headers in ({}, {"Range": "bytes=9-1"}):
        assert (await client.files.content(file.id, extra_headers=headers)).content == lines(2)
    assert (await client.files.delete(file.id)).deleted
    with pytest.raises(openai.NotFoundError, match="There is no file"):
        await client.files.retrieve(file.id)


async def test_no_key_reaches_what_another_one_left(tmp_path: Any) -> None:
    async with working(tmp_path, "ada", "bob") as gateway:
        ada, bob = gateway.client("ada"), gateway.client("bob")
        batch = await until(ada, (await made(ada, lines(1))).id, "completed")
        for call in (
            bob.files.retrieve(batch.input_file_id),
            bob.files.content(batch.output_file_id),
            bob.files.delete(batch.input_file_id),
            bob.batches.retrieve(batch.id),
            bob.batches.cancel(batch.id),
            bob.batches.create(input_file_id=batch.input_file_id, endpoint=batch.endpoint, completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        assert [found async for found in bob.files.list()] == []
        assert [found async for found in bob.batches.list()] == []


async def test_rows_may_do_what_their_key_may_and_no_more(tmp_path: Any) -> None:
    async with working(tmp_path, "ada", "blind") as gateway:
        ada, blind = gateway.client("ada"), gateway.client("blind")
        await until(ada, (await made(ada, lines(1, profile="docs"))).id, "completed")
        assert gateway.pipeline.jobs[-1].retrieval.tenant == "ada"
        refused = await until(blind, (await made(blind, lines(1))).id, "completed")
        (row,) = await rows_of(blind, refused.error_file_id)
        assert (row["response"]["status_code"], row["error"]["code"]) == (403, "permission_denied")


async def test_a_batch_whose_key_is_gone_fails_with_a_sentence(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(course, "_LOCKED_OUT_SECONDS", 0.2)
    batch = await made(Gateway(tmp_path, "ada").client(), lines(1))
    async with working(tmp_path, "bob") as gateway:
        path = tmp_path / "key-ada" / "batches" / batch.id / "batch.json"
        await eventually(lambda: read_json(path)["status"] == "failed")
        assert "opens nothing any more" in read_json(path)["errors"]["data"][0]["message"]
        assert gateway.pipeline.jobs == []


async def test_keys_take_turns(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path, "ada", "bob")
    first = [await made(gateway.client("ada"), lines(3, user="ada")) for _ in range(3)]
    other = await made(gateway.client("bob"), lines(3, user="bob"))
    async with working(tmp_path, "ada", "bob", running=1) as running:
        for batch in first:
            await until(running.client("ada"), batch.id, "completed")
        await until(running.client("bob"), other.id, "completed")
    asked = [job.request_id.rpartition("-")[0] for job in running.pipeline.jobs]
    assert list(dict.fromkeys(asked)) == [first[0].id, other.id, first[1].id, first[2].id]


async def test_a_batch_that_waits_for_its_key_s_limits_gives_way_to_another_key_s(tmp_path: Any) -> None:
    async with working(tmp_path, "ada", "bob", running=1) as gateway:
        gateway.pipeline.rescript(fail_before=RateLimitExceeded("Slower.", "gateway", None, 3600))
        slow = await made(gateway.client("ada"), lines(3))
        await eventually(lambda: len(gateway.pipeline.jobs) >= 3)
        other = await made(gateway.client("bob"), lines(1))
        gateway.pipeline.rescript(fail_before=None)
        await until(gateway.client("bob"), other.id, "completed")
        await until(gateway.client("ada"), slow.id, "completed")


async def test_a_key_that_opens_nothing_for_a_moment_costs_no_row(tmp_path: Any) -> None:
    async with working(tmp_path, "ada", concurrency=1) as gateway:
        gateway.pipeline.rescript(seconds_per_word=0.01)
        batch = await made(gateway.client(), lines(20))
        await eventually(lambda: len(gateway.pipeline.jobs) >= 4)
        gateway.keys._take(keys_of("bob"))
        await eventually(lambda: bool(gateway.worker._resting))
        gateway.keys._take(keys_of("ada"))
        done = await until(gateway.client(), batch.id, "completed", "failed")
        assert (done.status, done.request_counts.completed) == ("completed", 20)


async def test_a_batch_that_fails_half_way_keeps_what_was_answered(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(course, "_LOCKED_OUT_SECONDS", 0.2)
    async with working(tmp_path, "ada", concurrency=1) as gateway:
        gateway.pipeline.rescript(seconds_per_word=0.01)
        batch = await made(gateway.client(), lines(20))
        await eventually(lambda: len(gateway.pipeline.jobs) >= 4)
        gateway.keys._take(keys_of("bob"))
        path = tmp_path / "key-ada" / "batches" / batch.id / "batch.json"
        await eventually(lambda: read_json(path)["status"] == "failed")
        gateway.keys._take(keys_of("ada"))
        done = await gateway.client().batches.retrieve(batch.id)
        assert 3 <= len(await rows_of(gateway.client(), done.output_file_id)) == done.request_counts.completed < 20
        assert done.request_counts.total == 20


@pytest.mark.parametrize("status", ["in_progress", "finalizing"])
@pytest.mark.parametrize(("ended", "expected"), [(3, "completed"), (2, "expired")])
async def test_a_batch_that_was_answered_in_time_is_completed_whenever_it_is_written_out(
    tmp_path: Any, status: str, ended: int, expected: str
) -> None:
    """A failed row is answered as well, and a blank line is no row."""
    gateway = Gateway(tmp_path)
    batch = await made(gateway.client(), lines(2) + b"\n" + lines(1) + b"\n")
    folder = Batches(gateway.config.batches, owner_of(None)).folder(batch.id)
    with Ledger(folder / "progress") as ledger:
        for row in range(ended):
            error = {"code": "engine_failed", "message": "It gave up."} if row == 1 else None
            ledger.add(Record(row, f"q{row}", 200, "r", {}, error))
    write_json(folder / "batch.json", read_json(folder / "batch.json") | {"status": status, "expires_at": 1})
    async with working(tmp_path) as running:
        done = await until(running.client(), batch.id, "completed", "expired")
        assert (done.status, len(await rows_of(running.client(), done.output_file_id))) == (expected, ended - 1)


async def test_a_gateway_that_stops_hands_its_batch_on_and_no_row_is_asked_twice(tmp_path: Any) -> None:
    async with working(tmp_path, concurrency=1) as first:
        client = first.client()
        first.pipeline.rescript(seconds_per_word=0.01)
        batch = await made(client, lines(20))
        await eventually(lambda: len(first.pipeline.jobs) >= 8)
    async with working(tmp_path) as second:
        client = second.client()
        done = await until(client, batch.id, "completed")
        answers = await rows_of(client, done.output_file_id)
        assert [row["custom_id"] for row in answers] == [f"q{number}" for number in range(20)]
    # The one row that was at work when the first gateway stopped is asked again.
    assert len(first.pipeline.jobs) + len(second.pipeline.jobs) == 21


async def test_a_batch_that_cannot_be_read_stops_no_other(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path)
    batches = Batches(gateway.config.batches, owner_of(None))
    broken, whole = [await made(gateway.client(), lines(2)) for _ in range(2)]
    path = batches.folder(broken.id) / "progress"
    path.write_text("no folder")
    (batches.folder(whole.id).parent / f"batch_{32 * '0'}").mkdir()  # one that is only just being made
    async with working(tmp_path, running=1) as running:
        assert (await until(running.client(), whole.id, "completed")).request_counts.completed == 2
        assert {found.id async for found in running.client().batches.list()} == {broken.id, whole.id}


async def test_a_batch_whose_storage_fails_frees_its_place(tmp_path: Any, monkeypatch: Any) -> None:
    def fail(ledger: Ledger, *_: Any) -> None:
        really_close(ledger)
        raise OSError("no space")

    really_close = Ledger.close

    async with working(tmp_path, running=1) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "add", fail)
            patch.setattr(Ledger, "close", fail)
            await made(gateway.client(), lines(2))
            await eventually(lambda: bool(gateway.worker._resting))
        batch = await made(gateway.client(), lines(2))
        await until(gateway.client(), batch.id, "completed")


async def test_a_folder_without_locks_is_told_to_the_operator_and_the_caller(
    tmp_path: Any, monkeypatch: Any, caplog: Any
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    batch = await made(Gateway(tmp_path).client(), lines(1))
    monkeypatch.setattr("fcntl.flock", fail)
    async with working(tmp_path) as gateway:
        for told in (f"batch {batch.id} cannot be taken up", "nothing of nobody goes"):
            await eventually(
                lambda told=told: any(
                    told in line and "cannot be locked (No locks available)" in line
                    for line in caplog.text.splitlines()
                )
            )
        for call in (gateway.client().batches.cancel(batch.id), made(gateway.client(), lines(1))):
            with pytest.raises(openai.APIStatusError, match="keep it on storage with flock") as caught:
                await call
            assert caught.value.status_code == 503


async def test_two_gateways_share_the_batches_and_never_one_batch(tmp_path: Any) -> None:
    async with working(tmp_path) as first, working(tmp_path) as second:
        client = first.client()
        first.pipeline.rescript(seconds_per_word=0.005)
        second.pipeline.rescript(seconds_per_word=0.005)
        batches = [await made(client, lines(20)) for _ in range(2)]
        for batch in batches:
            done = await until(client, batch.id, "completed")
            assert done.request_counts.completed == 20
        assert sorted((len(first.pipeline.jobs), len(second.pipeline.jobs))) == [20, 20]


async def test_a_cancelled_batch_stops_and_keeps_what_was_answered(tmp_path: Any) -> None:
    async with working(tmp_path, concurrency=1) as gateway:
        client = gateway.client()
        gateway.pipeline.rescript(seconds_per_word=0.02)
        batch = await made(client, lines(200))
        await eventually(lambda: len(gateway.pipeline.jobs) >= 3)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        done = await until(client, batch.id, "cancelled")
        assert 1 <= len(await rows_of(client, done.output_file_id)) == done.request_counts.completed < 200
        with pytest.raises(openai.ConflictError, match="cancelled already"):
            await client.batches.cancel(batch.id)


async def test_a_batch_that_waits_is_cancelled_at_once(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path)
    batch = await made(gateway.client(), lines(2))
    assert (await gateway.client().batches.cancel(batch.id)).status == "cancelled"
    async with working(tmp_path) as running:
        await asyncio.sleep(0.1)
        assert running.pipeline.jobs == []
        assert (await running.client().batches.retrieve(batch.id)).cancelled_at


async def test_rows_that_are_not_answered_in_time_expire(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path)
    batch = await made(gateway.client(), lines(3))
    path = Batches(gateway.config.batches, owner_of(None)).folder(batch.id) / "batch.json"
    write_json(path, read_json(path) | {"expires_at": 1})
    async with working(tmp_path) as running:
        running.pipeline.rescript(delay_seconds=30)
        done = await until(running.client(), batch.id, "expired")
        errors = await rows_of(running.client(), done.error_file_id)
    assert [row["error"]["code"] for row in errors] == ["batch_expired"] * 3
    assert errors[0]["response"] is None


async def test_an_engine_that_fails_makes_failed_rows_not_a_failed_batch(tmp_path: Any) -> None:
    async with working(tmp_path) as gateway:
        gateway.pipeline.rescript(fail_before=EngineFailed("It gave up.", "generator"))
        done = await until(gateway.client(), (await made(gateway.client(), lines(1))).id, "completed")
        assert (done.output_file_id, done.request_counts.failed) == (None, 1)


async def test_limits_and_wrong_requests_are_told(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path, max_files=2, max_file_bytes=1000, max_rows=3, max_open=1, max_hours=48)
    client = gateway.client()
    batch = await made(client, lines(2))
    wrong = [
        (client.files.create(file=("a", b"x" * 1001), purpose="batch"), 400, "over the limit of 1000 bytes"),
        (client.files.create(file=("a", b""), purpose="batch"), 400, "The file is empty"),
        (client.files.create(file=("a", b"x"), purpose="assistants"), 400, "purpose must be 'batch'"),
        (made(client, lines(1)), 409, "1 batches at work"),
        (client.files.create(file=("a", b"x"), purpose="batch"), 409, "has 2 files"),
        (client.files.delete(batch.input_file_id), 409, "cancel the batch first"),
        (client.files.retrieve("../../x"), 404, "nothing at"),
        (client.files.retrieve("file-nothing"), 404, "There is no file"),
        (client.batches.retrieve("batch_nothing"), 404, "There is no batch"),
        (client.batches.list(after="nothing"), 400, "not in the list"),
    ]
    create = {"input_file_id": batch.input_file_id, "endpoint": batch.endpoint, "completion_window": "24h"}
    for change, told in (
        ({"endpoint": "/v1/images"}, "endpoint is"),
        ({"completion_window": "49h"}, "from 1h to 48h"),
        ({"completion_window": "soon"}, "completion_window: must be a number of hours, like 24h"),
    ):
        wrong.append((client.batches.create(**create | change), 400, told))
    for call, status, told in wrong:
        with pytest.raises(openai.APIStatusError, match=told) as caught:
            await call
        assert caught.value.status_code == status, told
        assert set(caught.value.body) == {"message", "type", "param", "code", "stage"}


async def test_faults_name_the_field_and_what_it_may_be(tmp_path: Any) -> None:
    client = Gateway(tmp_path).client()
    with pytest.raises(openai.NotFoundError, match="GET /v1/files lists those there are") as unknown:
        await client.batches.create(input_file_id="file-nothing", endpoint="/v1/completions", completion_window="24h")
    assert unknown.value.param == "input_file_id"
    with pytest.raises(openai.BadRequestError, match="order: must be one of 'asc' or 'desc'") as order:
        await client.files.list(order="up")  # type: ignore[arg-type]
    assert order.value.param == "order"
    assert (await client.files.list(order="asc")).data == []


async def test_an_upload_that_is_no_form_is_refused(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://gateway")
    async with http:
        assert (await http.post("/v1/files", json={})).status_code == 415
        broken = await http.post("/v1/files", content=b"x", headers={"content-type": "multipart/form-data"})
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("content", [b"\n\n", lines(4)])
async def test_a_file_of_no_rows_or_too_many_fails_the_batch_with_the_reason(tmp_path: Any, content: bytes) -> None:
    async with working(tmp_path, max_rows=3) as gateway:
        done = await until(gateway.client(), (await made(gateway.client(), content)).id, "failed")
        assert "send 1 to 3" in done.errors.data[0].message


async def test_without_a_folder_there_are_no_such_endpoints() -> None:
    client = Gateway("").client()
    with pytest.raises(openai.NotFoundError, match=r"name a folder for them in settings\.batches\.folder"):
        await client.files.list()


def test_the_folder_is_a_whole_path_and_the_class_exists(tmp_path: Any) -> None:
    for batches, told in (
        ({"folder": "x"}, "must be a whole path"),
        ({"folder": "/x", "priority": "none"}, "batches.priority names 'none'"),
    ):
        with pytest.raises(Exception, match=told):
            GatewayConfig.parse(SETTINGS | {"batches": batches}, "gateway")
