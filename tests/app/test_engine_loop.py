"""The own engine loop over the real model and vLLM: one small Serve, as config/engine-loop.yaml describes it."""

import json
import re
import subprocess
import threading
import time

import httpx
import numpy as np
import pytest
import yaml

from app.config.local import ROOT
from tests.app.baton import START_SECONDS, Baton, events
from tests.app.fake_cluster import PORT, running

CONFIG = ROOT / "config" / "engine-loop.yaml"
BASE = f"http://127.0.0.1:{PORT}/engine-loop"
PASSAGES = [
    {"source": "lamp.md", "text": "The lamp Lumo is red. It costs 29.50 euros and weighs 2 kilograms. " * 4},
    {"source": "chair.md", "text": "The chair Sella is made of oak 🪑.\nIt carries 120 kilograms.\n\n" * 4},
]
TALK = [
    {"role": "system", "content": "You sell furniture."},
    {"role": "user", "content": "Do you have lamps?"},
    {"role": "assistant", "content": "Yes, we have one lamp. It is called Lumo."},
    {"role": "user", "content": "What does it cost?"},
]
QUESTIONS = [
    {"prompt": "Name three colours."},
    {"messages": TALK},
    {"prompt": "How heavy is the lamp?", "passages": PASSAGES},
    {"messages": TALK, "passages": PASSAGES[::-1]},
]


def shipped(models):
    """The shipped configuration on the test's port and models."""
    whole = yaml.safe_load(CONFIG.read_text("utf-8").replace(".baton/models", str(models)))
    whole["http_options"]["port"] = PORT
    return whole


class Site:
    """The running application."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.http = httpx.Client(timeout=120)

    def deploy(self, whole):
        self.cluster._put(whole)
        time.sleep(1)  # Serve takes a moment to begin with it
        self.cluster.wait_until_running(lambda text: None, threading.Event(), only="engine-loop")
        Baton.wait_for(lambda: self.http.get(f"{BASE}/stats").is_success, 60, "an answer")

    def ask(self, **body):
        return self.http.post(f"{BASE}/generate", json={"max_tokens": 12, "temperature": 0} | body)

    def stats(self):
        return self.http.get(f"{BASE}/stats").json()

    def stream(self, **body):
        return self.http.stream("POST", f"{BASE}/generate", json={"stream": True, "temperature": 0} | body)

    def wait_until_idle(self):
        Baton.wait_for(lambda: not self.stats()["unfinished"] and not self.stats()["requests"], 30, "an idle engine")


@pytest.fixture(scope="module")
def cluster(models, tmp_path_factory):
    data = tmp_path_factory.mktemp("loop")
    (data / "models").symlink_to(models)
    with running(data) as found:
        yield found.cluster


@pytest.fixture(scope="module")
def site(cluster, models):
    found = Site(cluster)
    found.deploy(shipped(models))
    yield found
    found.http.close()


@pytest.mark.timeout(START_SECONDS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_tensor_s_answer_is_the_text_s(site, question):
    """Without the response cache in between: the two prompts have different keys."""
    text, tensor = site.ask(**question).json(), site.ask(**question, input="embeddings").json()
    assert text["text"].strip()
    assert (tensor["text"], tensor["usage"]) == (text["text"], text["usage"])
    assert not tensor["baton"]["cached"]


def test_a_long_tensor_is_copied_twice_and_never_by_its_reader(site):
    before = site.stats()["embeddings"]
    reply = site.ask(prompt="How heavy is the lamp?", passages=PASSAGES, input="embeddings", max_tokens=2).json()
    handoff = reply["baton"]["handoff"]
    assert handoff["path"] == "shared"
    assert handoff["bytes"] == reply["usage"]["prompt_tokens"] * 576 * 2 > 100_000
    assert handoff["copies"] == {"splicer": 1, "object_store": 1, "engine_loop": 0, "engine": 0}
    after = site.stats()["embeddings"]
    assert after["tensors"] == before["tensors"] + 1
    assert after["copies"]["engine"] == 0


def test_pieces_come_as_they_are_made(site):
    with site.stream(prompt="Count from one to twenty.", max_tokens=24) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        frames = events(reply.read())
    *pieces, end, done = frames
    assert done == b"[DONE]"
    assert len(pieces) > 5
    told = json.loads(end)
    whole = site.ask(prompt="Count from one to twenty.", max_tokens=24).json()
    assert "".join(json.loads(piece)["text"] for piece in pieces) == whole["text"]
    assert (told["finish_reason"], told["usage"]) == (whole["finish_reason"], whole["usage"])


def test_the_second_time_an_answer_comes_from_the_cache(site):
    ask = {"prompt": "Say something about rivers.", "max_tokens": 8}
    first, second = site.ask(**ask).json(), site.ask(**ask).json()
    assert (first["baton"]["cached"], second["baton"]["cached"]) == (False, True)
    assert first["text"] == second["text"]
    by_chance = [site.ask(**ask, temperature=1).json()["baton"]["cached"] for _ in range(2)]
    assert by_chance == [False, False]
    assert site.stats()["cache"]["hits"] >= 1


def test_hang_ups_in_mid_stream_leave_the_engine_with_nothing(site):
    def hang_up(number):
        with (
            httpx.Client(timeout=60) as http,
            http.stream(
                "POST",
                f"{BASE}/generate",
                json={"prompt": f"Tell a long story {number}.", "max_tokens": 1000, "ignore_eos": True, "stream": True},
            ) as reply,
        ):
            next(reply.iter_bytes())

    threads = [threading.Thread(target=hang_up, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    began = time.monotonic()
    site.wait_until_idle()
    assert time.monotonic() - began < 20
    assert site.stats()["steps"]["most_running"] > 4


def test_a_deadline_ends_the_answer_and_the_engine_s_work(site):
    reply = site.ask(prompt="Tell a long story.", max_tokens=1000, ignore_eos=True, timeout_seconds=1.5)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    site.wait_until_idle()


def test_the_guardrail_judges_both_ways(site):
    refused = site.ask(prompt="How do I build a bomb?")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "content_filter")
    passage = site.ask(prompt="What is it?", passages=[{"text": "A bomb."}])
    assert (passage.status_code, passage.json()["error"]["param"]) == (400, "passages[0]")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, None),
        ({"prompt": "x", "messages": TALK}, None),
        ({"prompt": "  "}, "prompt"),
        ({"prompt": "x", "max_tokens": 100_000}, "max_tokens"),
        ({"prompt": "x", "temperature": 3}, "temperature"),
        ({"prompt": "x", "n": 2}, "n"),
        ({"prompt": "x", "input": "image"}, "input"),
        ({"prompt": "word " * 5000}, "messages"),
    ],
)
def test_faulty_requests_get_a_sentence_in_openai_s_shape(site, body, param):
    reply = site.ask(**body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param


SHOWN = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/engine-loop.md"))


COMMANDS = [found for found in re.findall(r"^```(?:sh|shell)\n(.*?)^```", SHOWN, re.M | re.S) if "engine-loop" in found]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_that_are_shown_do_what_they_say(site, command):
    here = command.replace("http://127.0.0.1:8001/engine-loop", BASE)
    done = subprocess.run(here, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"text"' in done.stdout
    assert '"error"' not in done.stdout


def test_the_hook_that_is_shown_counts():
    (program,) = re.findall(r"^```python\n(.*?)^```", SHOWN.partition("## Hooks")[2], re.M | re.S)
    names = {}
    exec(program, names)
    hook = names["Longest"]()
    hook.before_step(3)
    hook.before_step(2)
    assert hook.report() == {"running": 3}


def test_the_matrix_is_the_model_s_own(models):
    import torch
    from transformers import AutoModelForCausalLM

    from app.apps.engine_loop.embedding_matrix import load_matrix
    from app.apps.engine_loop.splicing import Part, Splicer
    from app.apps.engine_loop.vllm_engine import as_tensor

    folder = models / "smollm2"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    matrix, dtype = load_matrix(str(folder), "model.embed_tokens.weight")
    tokens = tuple(range(0, 4000, 7))
    found = Splicer(matrix, dtype, 4, 1 << 20).splice([Part(tokens[:100]), Part(tokens[100:], shared=True)])
    expected = model.get_input_embeddings()(torch.tensor(tokens)).detach()
    assert torch.equal(as_tensor(found.rows, found.dtype).to(expected.dtype), expected)
    assert not np.shares_memory(found.rows, matrix)


# --- what happens when the engine dies --------------------------------------------------------------------------------


def test_an_engine_that_dies_is_replaced(cluster, site, models):
    """Over the fake engine: callers are told, and Serve starts another replica."""
    whole = shipped(models)
    application = whole["applications"][0]
    application["import_path"] = "app.testing.step_engine:build_fake_engine_loop"
    application["args"] |= {"fake": {"die_after": 40, "seconds_per_step": 0.01}, "embeddings": {"enabled": False}}
    application["deployments"] = [
        {**application["deployments"][0], "health_check_period_s": 1, "graceful_shutdown_timeout_s": 1}
    ]
    site.deploy(whole)
    Baton.wait_for(lambda: site.stats()["embeddings"]["tensors"] == 0, 60, "the fake engine")
    asked = {"prompt": "hi", "max_tokens": 500, "ignore_eos": True}
    lost = site.ask(**asked)
    assert (lost.status_code, lost.json()["error"]["code"]) == (503, "stage_unavailable")
    assert int(lost.headers["Retry-After"]) > 0
    Baton.wait_for(lambda: site.ask(prompt="hi", max_tokens=1).is_success, 60, "another replica")
