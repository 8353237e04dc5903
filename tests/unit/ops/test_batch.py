"""The command for batches: its usage, its exit codes, and the Baton that it starts for itself in a Ray cluster."""

import json
import os
import re
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml
from serving import Answers, serving

from app.batch.ledger import Ledger
from app.config.local import ROOT, load
from app.errors import ConfigError, StageUnavailable
from app.ops import batch, batch_engine


@pytest.fixture
def bad_rows(tmp_path):
    """A file whose rows need nobody to answer them."""
    path = tmp_path / "in.jsonl"
    path.write_text("{broken\n[]\n")
    return path


def test_rows_that_cannot_be_asked_are_the_output_and_the_exit_code(bad_rows, tmp_path, capsys):
    target = tmp_path / "out.jsonl"
    assert batch.main([str(bad_rows), str(target)]) == 1
    assert "2 rows, 2 failed" in capsys.readouterr().out
    assert [json.loads(line)["custom_id"] for line in target.read_text().splitlines()] == ["row-0", "row-1"]
    assert batch.main([str(bad_rows), str(target), "--tolerate-failed", "--retry-failed"]) == 0
    assert "2/2 rows, 2 failed in this run" in capsys.readouterr().out


def test_the_date_stands_for_today(bad_rows, tmp_path):
    today = datetime.now(UTC).date().isoformat()
    bad_rows.rename(tmp_path / f"{today}.jsonl")
    assert batch.main([str(tmp_path / "{date}.jsonl"), str(tmp_path / "{date}-answers.parquet")]) == 1
    assert (tmp_path / f"{today}-answers.parquet").exists()
    told = ["--progress", str(tmp_path / "{date}-done")]
    assert batch.main([str(tmp_path / "{date}.jsonl"), str(tmp_path / "out.jsonl"), *told]) == 1
    assert (tmp_path / f"{today}-done" / "done.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["IN", "IN"], "the same file"),
        (["none.jsonl", "OUT"], "does not exist"),
        (["IN", "out.csv"], "ends with .jsonl or .parquet"),
        (["IN", "s3://bucket/out.jsonl"], "name a folder with --progress"),
        (["s3:///in.jsonl", "OUT"], "names no object: Missing bucket"),
        (["IN", "OUT", "--config", "x.yaml"], "give both or none"),
        (["IN", "OUT", "--engine", "own"], "give both or none"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(bad_rows, tmp_path, capsys, arguments, told):
    places = {"IN": str(bad_rows), "OUT": str(tmp_path / "out.jsonl")}
    assert batch.main([places.get(word, word) for word in arguments]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost:8000", "http://", "ftp://a"])
def test_what_is_no_address_is_told_at_once(url, tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"prompt": "hi"}\n')
    with pytest.raises(SystemExit) as stopped:
        batch.main([str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), "--url", url])
    assert stopped.value.code == 2
    assert "is no address: write it like http://localhost:8000" in capsys.readouterr().err


def test_a_gateway_that_is_away_ends_the_run_with_3_and_the_way_on(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"prompt": "hi"}\n')
    arguments = [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl"), "--url", "http://127.0.0.1:1"]
    assert batch.main(arguments) == 3
    assert re.search(
        r"No gateway answers at http://127.0.0.1:1 \(ConnectError\): .*--wait-seconds", capsys.readouterr().err
    )


def test_what_is_no_gateway_is_told_before_a_row_is_spent(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text('{"prompt": "hi"}\n' * 3)
    places = [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]
    with serving(HTTPServer(("127.0.0.1", 0), Page)) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        assert batch.main([*places, "--url", f"{url}/v1"]) == 2
    assert f"Something other than Baton answers at {url}: correct --url." in capsys.readouterr().err
    assert Page.posted == 0
    assert not (tmp_path / "out.jsonl").exists()


def test_an_input_without_rows_is_told(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text("\n\n")
    places = [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]
    assert batch.main(places) == 1
    assert "in.jsonl holds no row" in capsys.readouterr().err
    assert batch.main([*places, "--tolerate-failed"]) == 0


def test_an_output_that_cannot_be_written_is_told_before_a_row_is_spent(bad_rows, tmp_path, capsys):
    (tmp_path / "folder.jsonl").mkdir()
    assert batch.main([str(bad_rows), str(tmp_path / "folder.jsonl")]) == 3
    assert "folder.jsonl is a folder: name a file in it" in capsys.readouterr().err
    assert batch.main([str(bad_rows), str(bad_rows / "out.jsonl")]) == 3
    assert "out.jsonl cannot be written (" in capsys.readouterr().err


def test_an_input_that_never_ends_is_refused(tmp_path, capsys):
    os.mkfifo(tmp_path / "in.jsonl")
    assert batch.main([str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]) == 2
    assert "in.jsonl is no regular file" in capsys.readouterr().err


def test_a_run_beside_another_one_ends_with_3_for_a_job_to_try_again(bad_rows, tmp_path, capsys):
    with Ledger(tmp_path / "out.jsonl.progress"):
        assert batch.main([str(bad_rows), str(tmp_path / "out.jsonl")]) == 3
    assert "Another process works on" in capsys.readouterr().err
    assert batch.main([str(bad_rows), str(tmp_path / "out.jsonl")]) == 1


class Page(Answers, BaseHTTPRequestHandler):
    """A web page, and nothing of an API."""

    posted = 0

    def do_GET(self):
        self.reply(b"<html>hello</html>")

    def do_POST(self):
        Page.posted += 1
        self.reply(b"{}")


class Dashboard(Answers, BaseHTTPRequestHandler):
    """Ray's dashboard: takes a Serve configuration and tells ``status`` of its application."""

    status, seen = "RUNNING", []

    def do_PUT(self):
        self.seen.append(("PUT", json.loads(self.rfile.read(int(self.headers["content-length"])))))
        self.reply(b"{}")

    def do_GET(self):
        found = {"applications": {"pipeline": {"status": self.status, "message": "no such model"}}}
        self.reply(json.dumps(found).encode())

    def do_DELETE(self):
        self.seen.append(("DELETE", None))
        self.reply(b"{}")


@pytest.fixture
def dashboard(monkeypatch):
    Dashboard.seen = []
    with serving(HTTPServer(("127.0.0.1", 0), Dashboard)) as server:
        monkeypatch.setattr(batch_engine, "_DASHBOARD", f"http://127.0.0.1:{server.server_port}/")
        yield Dashboard


CONFIG = {"applications": [{"name": "pipeline"}]}


def test_a_serve_configuration_is_read_to_the_letter(tmp_path):
    path = tmp_path / "serve.json"
    path.write_text(json.dumps({"applications": [{"args": {"prompt": "Say {name}."}}]}))
    assert batch_engine._serve_configuration(path)["applications"][0]["args"] == {"prompt": "Say {name}."}
    path.write_text("machine: {}\n")
    assert batch_engine._serve_configuration(path) is None


def test_a_serve_configuration_is_deployed_for_the_run_and_removed(dashboard):
    dashboard.status = "RUNNING"
    with batch_engine._in_this_cluster(CONFIG, 5) as url:
        assert url == "http://127.0.0.1:8000"
        assert dashboard.seen == [("PUT", CONFIG)]
    assert dashboard.seen[-1] == ("DELETE", None)


def test_an_application_that_fails_ends_the_run_with_serve_s_reason(dashboard):
    dashboard.status = "DEPLOY_FAILED"
    with pytest.raises(ConfigError, match="pipeline did not start: no such model"):
        batch_engine._in_this_cluster(CONFIG, 5).__enter__()
    assert dashboard.seen[-1] == ("DELETE", None)


def test_a_serve_configuration_without_a_cluster_is_told(monkeypatch):
    monkeypatch.setattr(batch_engine, "_DASHBOARD", "http://127.0.0.1:1/")
    with pytest.raises(StageUnavailable, match="elsewhere give a local configuration"):
        batch_engine._in_this_cluster(CONFIG, 5).__enter__()


def test_a_baton_of_its_own_takes_nothing_from_the_one_that_serves(tmp_path):
    raw = yaml.safe_load((ROOT / "config" / "local.yaml").read_text())
    raw["machine"]["grpcPort"] = 9000
    raw["settings"]["batches"] = {"folder": "/data/batches", "concurrency": 3}
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(raw))
    served = load(path, tmp_path)
    own = batch_engine.own_config(path, tmp_path)
    assert (own.machine.grpc_port, own.settings.batches.folder, own.settings.batches.concurrency) == (None, "", 3)
    names = ("port", "metrics_port", "dashboard_port")
    assert not {getattr(own.machine, name) for name in names} & {getattr(served.machine, name) for name in names}
    assert own.settings.profiles == served.settings.profiles


def test_a_baton_of_its_own_prepares_its_models_first(tmp_path, monkeypatch):
    done = []

    class Cluster:
        def __init__(self, config, data):
            self.url = f"http://127.0.0.1:{config.machine.port}"

        def __getattr__(self, name):
            return lambda *_: done.append(name)

    monkeypatch.setattr("app.ops.models.prepare_chat_model", lambda folder: done.append(folder.name))
    monkeypatch.setattr("app.ops.models.prepare_embedder", lambda folder: done.append(folder.name))
    monkeypatch.setattr("app.ops.local_cluster.LocalCluster", Cluster)
    monkeypatch.setattr(batch_engine, "wait_until_ready", lambda *_: None)
    with batch_engine.own_baton(ROOT / "config" / "local.yaml", tmp_path, 5):
        assert done == ["smollm2", "e5-small", "start", "deploy_engines_first", "wait_until_running"]
    assert done[-1] == "stop"
