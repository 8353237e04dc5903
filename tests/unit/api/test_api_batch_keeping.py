"""How long files and batches stay, and what a crash leaves of them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from batch_site import Gateway, eventually, lines, made, secret, until, working

from app.batch.store import Batches, owner_of, read_json, write_json
from app.batch.tidying import tidy

DAY = 24 * 3600


def age(place: Path, seconds: float) -> None:
    """Let a folder and what is in it look as if nobody had written there for so long."""
    then = time.time() - seconds
    for found in (*place.rglob("*"), place):
        os.utime(found, (then, then))


def change(path: Path, **fields: Any) -> None:
    write_json(path, (read_json(path) or {}) | fields)


def ids(found: Any) -> set[str]:
    return {item.id for item in found.data}


def left_by_a_crash(folder: Path) -> list[Path]:
    """Return what a crash leaves: of an upload, beside whole files, of a batch, of one removed by half."""
    number = iter(f"{digit:032x}" for digit in range(9))
    upload, meta, batch = (
        folder / "files" / f"file-{next(number)}",
        folder / "files" / f"file-{next(number)}",
        folder / "batches" / f"batch_{next(number)}",
    )
    for place, name in ((upload, ".content"), (meta, "content"), (batch, ".batch.json.0123abcd")):
        place.mkdir(parents=True)
        (place / name).write_bytes(b"half")
    return [upload, meta, batch]


async def test_what_a_crash_left_goes_at_the_next_start(tmp_path: Any) -> None:
    whole = await made(Gateway(tmp_path).client(), lines(1))
    folder = tmp_path / "nobody"
    torn = left_by_a_crash(folder)
    beside = [
        folder / "files" / whole.input_file_id / ".content",
        folder / "batches" / whole.id / ".batch.json.0123abcd",
    ]
    for path in beside:
        path.write_bytes(b"half")
    age(folder, 2 * 3600)
    async with working(tmp_path) as gateway:
        await eventually(lambda: not any(path.exists() for path in (*torn, *beside)))
        await until(gateway.client(), whole.id, "completed")


async def test_what_another_gateway_writes_at_the_moment_stays(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path)
    await made(gateway.client(), lines(1))
    torn = left_by_a_crash(tmp_path / "nobody")
    (tmp_path / "nobody" / "files" / "notes").mkdir()
    age(tmp_path / "nobody" / "files" / "notes", 2 * 3600)
    age(torn[0], 2 * 3600)
    (torn[0] / ".content").write_bytes(b"more")
    tidy(gateway.config.batches)
    assert all(path.exists() for path in torn)
    assert (tmp_path / "nobody" / "files" / "notes").exists()


async def ended(folder: Path, **batches: Any) -> tuple[Gateway, Any]:
    async with working(folder, **batches) as gateway:
        content = lines(1) + b"{broken\n"
        return gateway, await until(gateway.client(), (await made(gateway.client(), content)).id, "completed")


async def test_a_batch_that_ended_long_ago_goes_with_its_files(tmp_path: Any) -> None:
    gateway, done = await ended(tmp_path, keep_days=2)
    client, folder = gateway.client(), tmp_path / "nobody"
    files = {done.input_file_id, done.output_file_id, done.error_file_id}
    for file_id in files:
        change(folder / "files" / file_id / "meta.json", created_at=int(time.time()) - 3 * DAY)
    tidy(gateway.config.batches)
    assert ids(await client.files.list()) == files
    change(folder / "batches" / done.id / "batch.json", completed_at=int(time.time()) - 3 * DAY)
    tidy(gateway.config.batches)
    assert (ids(await client.files.list()), ids(await client.batches.list())) == (set(), set())
    assert not any(path.is_dir() for kind in ("files", "batches") for path in (folder / kind).iterdir())


async def test_what_an_ended_batch_has_left_of_its_progress_goes(tmp_path: Any) -> None:
    gateway, done = await ended(tmp_path)
    progress = tmp_path / "nobody" / "batches" / done.id / "progress"
    progress.mkdir(exist_ok=True)
    (progress / "done.jsonl").write_bytes(b"")
    tidy(gateway.config.batches)
    assert progress.exists()
    age(progress, 2 * 3600)
    tidy(gateway.config.batches)
    assert not progress.exists()
    assert (await gateway.client().batches.retrieve(done.id)).status == "completed"


async def test_without_days_things_stay_until_they_are_deleted(tmp_path: Any) -> None:
    gateway, done = await ended(tmp_path, keep_days=0)
    change(tmp_path / "nobody" / "batches" / done.id / "batch.json", completed_at=1)
    change(tmp_path / "nobody" / "files" / done.input_file_id / "meta.json", created_at=1)
    tidy(gateway.config.batches)
    assert len((await gateway.client().files.list()).data) == 3


async def test_nothing_of_an_open_batch_goes(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path, keep_days=1)
    client = gateway.client()
    batch = await made(client, lines(1))
    unused = await client.files.create(file=("rows.jsonl", lines(1)), purpose="batch")
    for file_id in (batch.input_file_id, unused.id):
        change(tmp_path / "nobody" / "files" / file_id / "meta.json", created_at=1, expires_at=2)
    change(tmp_path / "nobody" / "batches" / batch.id / "batch.json", created_at=1)
    age(tmp_path / "nobody", 9 * DAY)
    tidy(gateway.config.batches)
    assert ids(await client.files.list()) == {batch.input_file_id}
    assert ids(await client.batches.list()) == {batch.id}
    async with working(tmp_path) as running:
        assert (await until(running.client(), batch.id, "completed")).request_counts.completed == 1


async def test_a_batch_that_cannot_be_read_keeps_what_its_owner_has_and_no_other_s(tmp_path: Any) -> None:
    gateway = Gateway(tmp_path, "ada", "bob", keep_days=1)
    files = {}
    for key in ("ada", "bob"):
        files[key] = await gateway.client(key).files.create(file=("rows.jsonl", lines(1)), purpose="batch")
        change(tmp_path / f"key-{key}" / "files" / files[key].id / "meta.json", created_at=1)
    broken = await made(gateway.client("ada"), lines(1))
    path = Batches(gateway.config.batches, owner_of("ada")).folder(broken.id) / "batch.json"
    path.write_bytes(b"{")
    tidy(gateway.config.batches)
    assert files["ada"].id in ids(await gateway.client("ada").files.list())
    assert ids(await gateway.client("bob").files.list()) == set()


async def test_files_go_when_their_own_time_is_over(tmp_path: Any) -> None:
    async with working(tmp_path) as gateway:
        client = gateway.client()
        life = {"anchor": "created_at", "seconds": 3600}
        file = await client.files.create(file=("a", lines(1)), purpose="batch", expires_after=life)
        assert file.expires_at == file.created_at + 3600
        asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "output_expires_after": life}
        batch = await client.batches.create(input_file_id=file.id, **asked)
        done = await until(client, batch.id, "completed")
        output = await client.files.retrieve(done.output_file_id)
        assert output.expires_at == output.created_at + 3600
        for file_id in (file.id, output.id):
            change(tmp_path / "nobody" / "files" / file_id / "meta.json", expires_at=1)
        tidy(gateway.config.batches)
        assert ids(await client.files.list()) == set()
        assert ids(await client.batches.list()) == {batch.id}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"expires_after[anchor]": "created_at"}, "expires_after[seconds]"),
        ({"expires_after[seconds]": "7200"}, "expires_after[anchor]"),
        ({"expires_after[anchor]": "last_active_at", "expires_after[seconds]": "7200"}, "expires_after[anchor]"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "3599"}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "172801"}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "9" * 6000}, "expires_after[seconds]"),
        ({"expires_after[anchor]": "created_at", "expires_after[seconds]": "soon"}, "expires_after[seconds]"),
        ({"expires_after": "3600"}, "expires_after[anchor]"),
    ],
)
async def test_a_life_that_no_file_may_have_is_refused(tmp_path: Any, fields: dict[str, str], param: str) -> None:
    gateway = Gateway(tmp_path, keep_days=2)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://gateway") as http:
        reply = await http.post("/v1/files", data={"purpose": "batch"} | fields, files={"file": ("a", lines(1))})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert "from 3600 to 172800" in error["message"] or "must be 'created_at'" in error["message"]


@pytest.mark.parametrize("seconds", [3599, 172801, 10**9, "soon"])
async def test_a_life_that_no_output_may_have_is_refused(tmp_path: Any, seconds: Any) -> None:
    life = {"anchor": "created_at", "seconds": seconds}
    client = Gateway(tmp_path, keep_days=2).client()
    with pytest.raises(openai.BadRequestError, match=r"output_expires_after\.seconds") as caught:
        await made(client, lines(1), output_expires_after=life)
    assert caught.value.param == "output_expires_after.seconds"


async def test_a_file_that_goes_while_a_batch_of_it_is_made_is_told(tmp_path: Any) -> None:
    """Many at once: a batch is either refused, or has its file."""
    gateway = Gateway(tmp_path, "ada")
    client = gateway.client()
    file = await client.files.create(file=("a", lines(1)), purpose="batch")
    asked = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    http = httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url="http://gateway")
    async with http:
        headers = {"Authorization": f"Bearer {secret('ada')}"}
        body = {"input_file_id": file.id, **asked}
        made_, gone = await asyncio.gather(
            http.post("/v1/batches", json=body, headers=headers), http.delete(f"/v1/files/{file.id}", headers=headers)
        )
    assert (made_.status_code, gone.status_code) in ((200, 409), (404, 200))
