"""Model files from a web folder or a path: by manifest, going on after a break, checked before they are in place."""

import hashlib
import json
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from app.delivery import folder as delivery
from app.delivery.manifest import MANIFEST, read_manifest, verify
from app.delivery.progress import Progress
from app.errors import ConfigError
from app.ops import models
from app.testing.hub import FakeHub

WEIGHTS = bytes(range(256)) * 4000
FILES = {"config.json": b"{}", "deep/model.safetensors": WEIGHTS}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(delivery, "_PAUSE_SECONDS", 0)


@pytest.fixture
def source(tmp_path):
    """A folder with a model's files and no manifest yet."""
    folder = tmp_path / "source"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / ".hidden").write_text("x")
    return folder


def manifest():
    facts = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in FILES.items()}
    return json.dumps({"source": "x", "revision": "", "files": facts}).encode()


@pytest.fixture
def web():
    """A web folder that knows ranges: files of a hub by their plain addresses."""
    with FakeHub({"w/x": {**FILES, MANIFEST: manifest()}}) as hub:
        yield hub


def url_of(web):
    return f"{web.url}/w/x/resolve/main"


def quiet(line):
    pass


def content_of(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def test_a_web_folder_comes_in_whole(web, tmp_path):
    lines = []
    folder = delivery.pull_from_url(f"{url_of(web)}/", tmp_path / "out", lines.append)
    assert content_of(folder) == FILES
    assert verify(folder) == []
    assert lines == [f"{url_of(web)}: all 2 files are in {folder} and have their checksums"]
    asked = len(web.requests)
    delivery.pull_from_url(url_of(web), folder, quiet)
    assert len(web.requests) == asked + 1  # the manifest alone


def test_a_download_goes_on_after_breaks_and_after_a_run_that_ended(web, tmp_path):
    web.broken_after = 300_000
    folder = delivery.pull_from_url(url_of(web), tmp_path / "one", quiet)
    assert content_of(folder) == FILES
    assert [start for start in web.ranges if start] == [300_000, 600_000, 900_000]
    web.ranges.clear()
    web.broken_after = None
    partial = tmp_path / "two" / "deep" / "model.safetensors.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(WEIGHTS[:700_000])
    assert content_of(delivery.pull_from_url(url_of(web), tmp_path / "two", quiet)) == FILES
    assert [start for start in web.ranges if start] == [700_000]
    assert not partial.exists()


def test_what_was_begun_of_another_version_is_begun_anew(web, tmp_path):
    partial = tmp_path / "out" / "deep" / "model.safetensors.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(b"old" * 1000)
    assert content_of(delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)) == FILES


@contextmanager
def plain_server(folder):
    """Serve a folder as Python does, and yield its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_server_that_knows_no_ranges_sends_the_file_again(source, tmp_path):
    delivery.pull_from_path(source, None, quiet)
    begun = tmp_path / "out" / "deep" / "model.safetensors.partial"
    begun.parent.mkdir(parents=True)
    begun.write_bytes(WEIGHTS[:1000])
    with plain_server(source) as url:
        assert content_of(delivery.pull_from_url(url, tmp_path / "out", quiet)) == FILES


def test_names_that_mean_something_else_in_a_url(source, tmp_path):
    odd = "part #1?/50 % of it ü.json"
    (source / odd).parent.mkdir()
    (source / odd).write_text("{}")
    delivery.pull_from_path(source, None, quiet)
    with plain_server(source) as url:
        assert (delivery.pull_from_url(url, tmp_path / "out", quiet) / odd).read_text() == "{}"


def test_a_damaged_file_never_gets_into_its_place(web, tmp_path):
    web.damaged.add("deep/model.safetensors")
    with pytest.raises(ConfigError, match=r"deep/model\.safetensors has not the checksum of the manifest"):
        delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)
    assert not list((tmp_path / "out" / "deep").iterdir())
    assert read_manifest(tmp_path / "out") is None


def test_a_server_that_sends_nothing_is_given_up_and_what_came_is_kept(web, tmp_path):
    web.broken_after = 0
    with pytest.raises(
        ConfigError, match=r"its server broke off \(RemoteProtocolError\); what came is kept, pull again"
    ):
        delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)


def test_servers_that_have_no_model(tmp_path, web):
    for url in ("http://127.0.0.1:9/x", "http://[::1/x"):
        with pytest.raises(ConfigError, match="does not answer"):
            delivery.pull_from_url(url, tmp_path / "out", quiet)
    with pytest.raises(ConfigError, match=r"answered 404 to baton-manifest\.json"):
        delivery.pull_from_url(f"{web.url}/w/y/resolve/main", tmp_path / "out", quiet)
    for name, size, words in (
        ("../../x", 1, "names a file outside of its folder"),
        ("a\0b", 1, "names a file outside of its folder"),
        ("a", -1, "tells no size of 'a'"),
    ):
        listed = {"source": "", "revision": "", "files": {name: {"sha256": "", "bytes": size}}}
        web.models["w/x"][MANIFEST] = json.dumps(listed).encode()
        with pytest.raises(ConfigError, match=words):
            delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)
    web.models["w/x"][MANIFEST] = b"<html>"
    with pytest.raises(ConfigError, match="is not a manifest"):
        delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)


def test_no_room(web, tmp_path, monkeypatch):
    monkeypatch.setattr(delivery.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(ConfigError, match="make room"):
        delivery.pull_from_url(url_of(web), tmp_path / "out", quiet)


def test_the_command_line_from_pull_to_verify(source, tmp_path, capsys):
    out = tmp_path / "out"
    assert models.main(["pull", str(source), "--out", str(out), "--verify"]) == 0
    assert content_of(out) == FILES
    assert not (out / ".hidden").exists()
    assert models.main(["pull", str(source)]) == 0
    assert models.main(["verify", str(source), str(out)]) == 0
    assert models.main(["list", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"{out}: 2 files are as they came" in told
    assert told.splitlines()[-1].split() == [str(source), "1.0", "MB", "whole"]

    (out / "config.json").write_bytes(b"[]")
    (out / "deep" / "model.safetensors").write_bytes(b"short")
    assert models.main(["verify", str(out)]) == 1
    faults = capsys.readouterr().err.splitlines()
    assert "config.json has the checksum 4f53cda18c2b… in place of 44136fa355b3…" in faults[0]
    assert "deep/model.safetensors has 5 bytes in place of 1024000" in faults[1]
    models.main(["list", str(out)])
    assert "files are missing: pull again" in capsys.readouterr().out
    assert models.main(["pull", str(source), "--out", str(out), "--verify"]) == 0
    (source / MANIFEST).write_text("{}")
    assert models.main(["list", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "is not a manifest of model files" in told
    assert f"{out} " in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pull", "http://x/y"], "--out DIR"),
        (["pull", "a/b", "--out", "{tmp}/x"], "set HF_HUB_CACHE, not --out"),
        (["pull", "a/b", "c/d", "--out", "{tmp}/x"], "one model"),
        (["pull", "/no/such/folder"], "there is no such folder"),
        (["pull", "{tmp}/empty"], "holds no files"),
        (["pull", "{tmp}/dangling"], "dangling/a.json cannot be read (No such file or directory)"),
        (["verify", "{tmp}/empty"], "has no baton-manifest.json: pull the model"),
        (["verify", "a/b"], "does not lie whole in the hub's cache"),
    ],
)
def test_commands_that_cannot_be_done(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling" / "a.json").symlink_to(tmp_path / "nothing")
    assert models.main([argument.format(tmp=tmp_path) for argument in arguments]) == 1
    assert words in capsys.readouterr().err


def test_progress_is_told_now_and_then():
    lines = []
    progress = Progress("a/b", 4_000_000_000, lines.append, interval=0)
    progress.add(1_000_000_000, there=True)
    progress.add(2_000_000_000)
    assert lines[-1].startswith("a/b: 3.0 of 4.0 GB (75 %), ")
    seldom = Progress("a/b", 10, lines.append, interval=60)
    seldom.add(5)
    assert len(lines) == 2
