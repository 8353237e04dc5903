"""API keys over a running pipeline: closed routes, scopes, tenants, limits, and a file that is read live."""

import os
import re
import subprocess
from contextlib import contextmanager

import httpx
import pytest
import yaml

from app.keys.file import hash_of
from tests.app.baton import MODEL, ROOT
from tests.app.test_readme import here

PAGE = (ROOT / "docs" / "keys.md").read_text("utf-8")
EVERYTHING = {"models": ["*"], "profiles": ["*"], "collections": ["*"], "ingest": True, "drop": True}
CHAT, SHARED = "/v1/chat/completions", "/v1/collections/shared-notes"


def secret(name):
    return f"bt-{name}-{'x' * 40}"


def entry(name, **more):
    return {"id": name, "secrets": [{"hash": hash_of(secret(name))}], "scopes": EVERYTHING} | more


ENTRIES = (
    entry("all"),
    entry("model", scopes={"models": [MODEL]}),
    entry("red", tenant="red"),
    entry("blue", tenant="blue"),
    entry("few", limits={"tokensPerMinute": 5}),
)


def write(path, *entries):
    fresh = path.with_suffix(".new")
    fresh.write_text(yaml.safe_dump({"keys": list(entries)}))
    fresh.replace(path)


@contextmanager
def closed(baton, path, opener):
    """Turn keys on with the file at ``path``, of which ``opener`` is a secret, and off again."""

    def with_keys(raw):
        raw["settings"]["auth"] = {"enabled": True, "keysFile": str(path)}

    try:
        baton.deploy(with_keys)
        key = {"Authorization": f"Bearer {opener}"}
        baton.wait_for(lambda: baton.http.get("/v1/models").status_code == 401, 30, "keys are on")
        baton.wait_for(
            lambda: baton.http.get("/v1/models", headers=key).status_code == 200, 30, "this file is in force"
        )
        yield
    finally:
        baton.deploy()
        baton.wait_for(lambda: baton.http.get("/v1/models").status_code == 200, 30, "keys are off")


@pytest.fixture(scope="module")
def keyed(baton, tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys.yaml"
    write(path, *ENTRIES)
    with closed(baton, path, secret("all")):
        yield baton
    with httpx.Client(base_url=baton.base, timeout=120) as client:
        client.delete(SHARED)
    assert path.exists()


def call(baton, name, method, path, **body):
    headers = {"Authorization": f"Bearer {secret(name)}"}
    return baton.http.request(method, path, headers=headers, timeout=120, **({"json": body} if body else {}))


def ask(baton, name, **body):
    turn = {"messages": [{"role": "user", "content": "Which word has the note?"}], "max_tokens": 8}
    return call(baton, name, "POST", CHAT, **turn | body)


@pytest.mark.timeout(300)
def test_routes_are_closed_and_a_key_opens_what_it_may_use(keyed):
    for path in ("/v1/models", "/v1/collections", "/openapi.json", "/docs", "/nothing", "/default/v1/models"):
        assert keyed.http.get(path).status_code == 401, path
    for path in ("/healthz", "/readyz", "/", "/static/app.js"):
        assert keyed.http.get(path).status_code == 200, path
    assert keyed.chat("hi").status_code == 401
    assert ask(keyed, "model", model=MODEL, rag={"enabled": False}).status_code == 200
    searching = ask(keyed, "model", model=MODEL)  # as the default profile would
    assert (searching.status_code, searching.json()["error"]["param"]) == (403, "rag.collection")
    refused = ask(keyed, "model", profile="default")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")
    assert [found["id"] for found in call(keyed, "model", "GET", "/v1/models").json()["data"]] == [MODEL]
    assert call(keyed, "model", "POST", f"{SHARED}/documents", documents=[{"text": "x"}]).status_code == 403


@pytest.mark.timeout(300)
def test_tenants_of_one_collection_never_meet(keyed):
    for name in ("red", "blue"):
        documents = [{"id": "note", "text": f"The note has the code word of {name}.", "metadata": {"lang": "en"}}]
        stored = call(keyed, name, "POST", f"{SHARED}/documents", documents=documents)
        assert stored.json()["documents"] == 1, stored.text
    for name, other in (("red", "blue"), ("blue", "red")):
        for flt in (None, {}, {"lang": "en"}, {"or": [{}, {"lang": "zh"}]}, {"not": {"lang": "zh"}}):
            rag = {"collection": "shared-notes", "return_contexts": True} | ({} if flt is None else {"filter": flt})
            contexts = ask(keyed, name, model=MODEL, rag=rag).json()["baton"]["contexts"]
            assert [context["id"] for context in contexts] == ["note#0"], flt
            assert other not in contexts[0]["text"]
        listed = call(keyed, name, "GET", SHARED).json()
        assert (listed["documents"], listed["passages"]) == (1, 1)
    reserved = ask(keyed, "red", model=MODEL, rag={"collection": "shared-notes", "filter": {"baton.tenant": "blue"}})
    assert reserved.status_code == 400
    assert call(keyed, "all", "GET", SHARED).json()["documents"] == 2
    gone = call(keyed, "red", "DELETE", f"{SHARED}/documents?id=note&id=tenant:blue/note")
    assert gone.json()["deleted"] == 1
    assert call(keyed, "red", "GET", SHARED).status_code == 404
    assert call(keyed, "blue", "GET", SHARED).json()["documents"] == 1


@pytest.mark.timeout(300)
def test_tokens_over_the_limit_wait(keyed):
    assert ask(keyed, "few", model=MODEL).status_code == 200
    refused = ask(keyed, "few", model=MODEL)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) > 1
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"


@pytest.mark.timeout(300)
def test_a_changed_file_comes_into_force_a_wrong_one_does_not_and_ends_are_exported(baton, tmp_path):
    path = tmp_path / "keys.yaml"
    write(path, entry("old"))
    with closed(baton, path, secret("old")):

        def status(name):
            return call(baton, name, "GET", "/v1/models").status_code

        assert (status("old"), status("new")) == (200, 401)
        ends = {"hash": hash_of(secret("new")), "expires": "2100-01-01T00:00:00Z"}
        write(path, entry("new", secrets=[ends]))
        baton.wait_for(lambda: status("new") == 200, 20, "the new key is in force")
        assert status("old") == 401
        refusals = baton.scrape("ray_baton_config_refused_total")
        path.write_text("keys: [{id: new}]")
        baton.wait_for(lambda: baton.scrape("ray_baton_config_refused_total") > refusals, 30, "the refusal is counted")
        assert status("new") == 200
        name = "ray_baton_key_expires_timestamp_seconds"
        baton.wait_for(lambda: baton.scrape(name, 'key="new"') == 4102444800, 30, "the end is exported")


@pytest.mark.timeout(300)
def test_the_commands_of_the_page_do_what_they_say(baton, tmp_path):
    """The first makes a key and shows the file; the second asks with it."""
    path = tmp_path / "keys.yaml"
    make, use = (
        block.replace(".baton/keys.yaml", str(path)) for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    )

    def run(script, **env):
        done = subprocess.run(
            here(baton, script), shell=True, cwd=ROOT, capture_output=True, text=True, timeout=180, env=os.environ | env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    *listed, made = run(f'{make}\necho "$BATON_API_KEY"').strip().splitlines()
    assert listed[1].startswith("laptop ")
    with closed(baton, path, made):
        said = run(use, BATON_API_KEY=made)
    assert '"object":"list"' in said
    assert "Sources" in said
