"""What the pipeline would refuse, or could never start, `make run` and `make apply` refuse before they send it."""

import http.server
import json
import re
import signal
import sys
import threading
from _thread import interrupt_main

import pytest
import yaml

from app.config.local import ROOT, load
from app.errors import ConfigError
from app.keys.file import hash_of
from app.ops import apply, config_checks, run
from tests.unit.ops.serving import Answers, serving

LOCAL = ROOT / "config" / "local.yaml"


@pytest.fixture(autouse=True)
def _signals():
    """Give back the handlers of this process, which `make run` replaces."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def written(folder, change):
    """Return the path of the shipped configuration, changed by ``change(raw)``; its models are there."""
    for model in run.prepared_models(folder):
        model.mkdir(parents=True, exist_ok=True)
    raw = yaml.safe_load(LOCAL.read_text())
    change(raw)
    path = folder / "local.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def policy(raw):
    return raw["settings"]["guardrail"]["policies"]["default"]


def stage(name, **options):
    return lambda raw: raw["pipeline"]["stages"].update({name: {"placement": "deployment", "options": options}})


def classifier(folder, labels):
    (folder / "classifier").mkdir()
    (folder / "classifier" / "config.json").write_text(json.dumps({"id2label": {"0": "good", "1": "bad"}}))
    return {"path": str(folder / "classifier"), "labels": labels}


REFUSALS = {
    "pattern": (
        lambda raw, _: policy(raw).update(patterns=[{"name": "p", "pattern": "("}]),
        r"guardrail\.policies\.default\.patterns\.p: the pattern '\(' does not compile",
    ),
    "folder of terms": (
        lambda raw, folder: policy(raw).update(termsFiles=[str(folder)]),
        r"guardrail\.policies\.default\.termsFiles\[0\]: cannot read the terms file .*: Is a directory",
    ),
    "binary terms": (
        lambda raw, folder: policy(raw).update(termsFiles=[str(folder / "binary")]),
        r"termsFiles\[0\]: cannot read the terms file .*: it is not UTF-8",
    ),
    "lines of terms": (
        lambda raw, folder: policy(raw).update(termsFiles=[str(folder / "terms.jsonl")]),
        r"termsFiles\[0\]: file .*, line 2: acton: there is no such key",
    ),
    "label": (
        lambda raw, folder: policy(raw).update(classifier=classifier(folder, ["ugly"])),
        r"classifier\.labels: the classifier has no label 'ugly'; it has \['bad', 'good'\]",
    ),
    "classifier": (
        lambda raw, folder: policy(raw).update(classifier={"path": str(folder), "labels": ["bad"]}),
        r"default\.classifier: cannot load the classifier .* \(FileNotFoundError\); give a folder with a model",
    ),
    "secret": (
        lambda raw, _: raw["pipeline"]["store"].update(secretFile="/nowhere/secret"),
        r"pipeline\.store\.secretFile names '/nowhere/secret', which does not exist",
    ),
    "packages": (
        lambda raw, _: raw["pipeline"].update(store={"kind": "qdrant", "uri": "http://127.0.0.1:6333"}),
        r"store\.kind: qdrant needs packages that are not installed: run `scripts/setup\.sh --extra qdrant`",
    ),
    "store in a file": (
        lambda raw, folder: raw["pipeline"]["store"].update(uri=str(folder / "binary" / "index")),
        r"pipeline\.store\.uri names .*, where nothing can be written \(Not a directory\)",
    ),
    "store that cannot be made": (
        lambda raw, _: raw["pipeline"]["store"].update(uri="/proc/baton/index"),
        r"pipeline\.store\.uri names '/proc/baton/index', where nothing can be written \(.+\): name a folder",
    ),
    "batches in a file": (
        lambda raw, folder: raw["settings"].update(batches={"folder": str(folder / "binary")}),
        r"settings\.batches\.folder names .*, where no files can be kept \(Not a directory\): name a folder",
    ),
    "batches below a file": (
        lambda raw, folder: raw["settings"].update(batches={"folder": str(folder / "binary" / "batches")}),
        r"settings\.batches\.folder names .*, where no files can be kept \(Not a directory\)",
    ),
    "batches that cannot be made": (
        lambda raw, _: raw["settings"].update(batches={"folder": "/proc/baton/batches"}),
        r"settings\.batches\.folder names '/proc/baton/batches', where no files can be kept \(.+\)",
    ),
    "CPUs of a stage": (
        lambda raw, _: stage("retriever", ray_actor_options={"num_cpus": 500})(raw),
        r"A replica of pipeline\.stages\.retriever asks for 500 CPUs \(num_cpus\), and this machine offers 8 ",
    ),
    "CPUs of the gateway": (
        lambda raw, _: raw["pipeline"]["stages"]["gateway"]["options"]["ray_actor_options"].update(num_cpus=9),
        r"A replica of pipeline\.stages\.gateway asks for 9 CPUs",
    ),
    "CPUs of a model": (
        lambda raw, _: raw["models"][0]["engine"]["placement_group_config"].update(bundles=[{"CPU": 6}, {"CPU": 6}]),
        r"A replica of models\.0 asks for 12 CPUs",
    ),
    "CPUs together": (
        lambda raw, _: stage("retriever", num_replicas=7)(raw),
        r"ask for 9 CPUs together \(.*pipeline\.stages\.retriever 7, .*models\.0 1\), and this machine offers 8 ",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
@pytest.mark.parametrize("program", [run, apply])
def test_what_cannot_work_is_refused_before_it_is_sent(program, case, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_client", None)
    monkeypatch.setattr("app.ops.preflight.check", lambda machine, data: None)  # ports and memory of this machine
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    (tmp_path / "terms.jsonl").write_text('{"term": "bomb"}\n{"term": "mine", "acton": "flag"}\n')
    change, sentence = REFUSALS[case]
    path = written(tmp_path, lambda raw: change(raw, tmp_path))
    assert program.main(["--config", str(path), "--data", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert re.search(sentence, told), told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: None,
        lambda raw: raw["pipeline"].update(store={"kind": "lancedb", "uri": "s3://bucket/index"}),
        lambda raw: raw["settings"].update(batches={"folder": "/tmp/baton-none/batches"}),
        stage("retriever", ray_actor_options={"num_cpus": 0}, num_replicas=50),
        stage("postprocessor", autoscaling_config={"min_replicas": 0, "max_replicas": 50}),
        lambda raw: raw["models"][0]["options"].update(ray_actor_options={"num_cpus": 8}) or all_free(raw),
    ],
)
def test_what_fits_is_left_alone(change, tmp_path):
    config = load(written(tmp_path, change), tmp_path)
    config_checks.check_config(config)
    assert not (tmp_path / "index").exists()


def all_free(raw):
    for name in ("gateway", "retriever", "postprocessor"):
        raw["pipeline"]["stages"][name]["options"] = {"ray_actor_options": {"num_cpus": 0}}


def test_a_collection_that_nobody_has_indexed_is_a_warning(tmp_path):
    def change(raw):
        for name, collections in {"plain": ["nosuch", "docs"], "shopping": ["notes"]}.items():
            raw["settings"]["profiles"][name]["retrieval"] = {"collections": collections}

    config = load(written(tmp_path, change), tmp_path)
    assert config_checks.collections_on_disk(config.pipeline.store) == []
    (tmp_path / "index" / "notes.lance").mkdir(parents=True)
    known = config_checks.collections_on_disk(config.pipeline.store)
    (line,) = config_checks.missing_collections(config, known)
    assert line == (
        "warning: settings.profiles.plain.retrieval.collections names 'nosuch', which is not there: "
        "questions get 404 until it is indexed"
    )
    elsewhere = config.pipeline.store.model_copy(update={"uri": "s3://bucket/index"})
    assert config_checks.collections_on_disk(elsewhere) is None


def test_variants_search_collections_too(tmp_path):
    def change(raw):
        searching = {"weight": 1, "retrieval": {"collections": ["docs", "nosuch"]}}
        raw["settings"]["routing"] = {"plain": {"variants": {"a": searching, "b": {}}}}

    (line,) = config_checks.missing_collections(load(written(tmp_path, change), tmp_path), ())
    assert line.startswith("warning: settings.routing.plain.variants.a.retrieval.collections names 'nosuch',")


class Dashboard(Answers, http.server.BaseHTTPRequestHandler):
    """Takes any configuration, is busy with it for ever, and lets somebody press Ctrl-C meanwhile."""

    sent = threading.Event()

    def do_GET(self):
        known = {"object": "list", "data": [{"name": "docs"}]}
        busy = {"applications": {"pipeline": {"status": "DEPLOYING", "message": ""}}}
        self._reply(known if self.path == "/v1/collections" else busy)
        if self.sent.is_set():
            self.sent.clear()
            interrupt_main()

    def do_PUT(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.sent.set()
        self._reply({})

    def _reply(self, value):
        self.reply(json.dumps(value).encode())


def answering(handler):
    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)


def test_ctrl_c_ends_apply_in_one_line(tmp_path, capsys):
    path = written(tmp_path, lambda raw: raw["settings"]["profiles"]["shopping"]["retrieval"].update(collections=["x"]))
    with serving(answering(Dashboard)) as dashboard, serving(answering(Dashboard)) as gateway:
        options = ["--config", str(path), "--data", str(tmp_path), "--port", str(gateway.server_port)]
        code = apply.main([*options, "--dashboard-port", str(dashboard.server_port), "--metrics-port", "1"])
    said = capsys.readouterr()
    assert code == 130
    assert said.err == "baton: interrupted; what was sent already stays sent, and comes into force.\n"
    assert "shopping.retrieval.collections names 'x', which is not there" in said.out


def with_keys(raw, folder):
    raw["settings"]["auth"] = {"enabled": True, "keysFile": str(folder / "keys.yaml")}


@pytest.fixture
def keyed(tmp_path):
    key = {"id": "own", "secrets": [{"hash": hash_of("bt-right")}]}
    (tmp_path / "keys.yaml").write_text(yaml.safe_dump({"keys": [key]}))
    return load(written(tmp_path, lambda raw: with_keys(raw, tmp_path)), tmp_path)


def test_a_start_that_indexes_with_keys_on_needs_a_key(keyed, monkeypatch):
    monkeypatch.setenv("BATON_API_KEY", "bt-right")
    config_checks.check_own_key(keyed)
    config_checks.check_keys(keyed)
    monkeypatch.delenv("BATON_API_KEY")
    config_checks.check_keys(keyed)
    with pytest.raises(ConfigError, match="give a key with ingest in the environment variable BATON_API_KEY"):
        config_checks.check_own_key(keyed)


def test_a_key_of_ours_that_the_file_lacks_is_told(keyed, monkeypatch):
    monkeypatch.setenv("BATON_API_KEY", "bt-wrong")
    with pytest.raises(ConfigError, match="BATON_API_KEY is none of"):
        config_checks.check_keys(keyed)


def test_a_file_of_keys_that_is_not_there_is_refused_before_anything_starts(tmp_path, capsys):
    path = written(tmp_path, lambda raw: with_keys(raw, tmp_path))
    assert apply.main(["--config", str(path), "--data", str(tmp_path)]) == 2
    assert "keys.yaml cannot be read: No such file or directory" in capsys.readouterr().err
