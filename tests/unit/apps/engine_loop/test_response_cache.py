"""The response cache: whose answers are kept, for whom, and how many."""

import numpy as np
import pytest

from app.apps.engine_loop.contract import LoopRequest, StepOutput, TensorPrompt
from app.apps.engine_loop.response_cache import ResponseCache, cache_key
from app.config.engine_loop import ResponseCacheConfig

GREEDY = {"temperature": 0, "max_tokens": 8}


def cache(**config):
    return ResponseCache(ResponseCacheConfig(enabled=True, **config))


def request(name="a", key=b"key"):
    return LoopRequest(name, (1, 2), GREEDY, cache_key=key)


def answer(found, asked, text="yes", reason="stop"):
    """Let the engine answer a request that the cache did not."""
    assert found.on_add(asked) is None
    found.after_step([StepOutput(asked.id, text[:1], (1,)), StepOutput("other", "?", (9,))])
    found.after_step([StepOutput(asked.id, text[1:], (2,), reason)])
    found.on_end(asked)


def test_the_second_time_the_answer_is_there():
    kept = cache()
    answer(kept, request())
    again = kept.on_add(request("b"))
    assert (again.text, again.tokens, again.finish_reason) == ("yes", (1, 2), "stop")
    assert (kept.report()["hits"], kept.report()["misses"], kept.report()["answers"]) == (1, 1, 1)


def test_requests_without_a_key_pass_by():
    kept = cache()
    answer(kept, request(key=b""))
    assert kept.on_add(request(key=b"")) is None
    assert kept.report() == {"hits": 0, "misses": 0, "answers": 0, "bytes": 0}


def test_answers_that_were_broken_off_are_not_kept():
    kept = cache()
    for reason in ("abort", "error"):
        answer(kept, request(), reason=reason)
    assert kept.on_add(request("b")) is None
    kept.after_step([StepOutput("b", "half", (1,))])
    kept.on_end(request("b"))
    assert kept.on_add(request("c")) is None


def test_it_holds_no_more_than_so_many_answers_the_oldest_go():
    kept = cache(max_answers=2)
    for key in (b"1", b"2"):
        answer(kept, request(key=key))
    assert kept.on_add(request(key=b"1")) is not None
    answer(kept, request(key=b"3"))
    assert [kept.on_add(request("x", key)) is not None for key in (b"1", b"2", b"3")] == [True, False, True]


def test_it_holds_no_more_than_so_many_bytes():
    kept = cache(max_bytes=100)
    for number in range(20):
        answer(kept, request(key=bytes([number])), text="é" * 20)
        assert kept.report()["bytes"] <= 100
    assert kept.report()["answers"] == 1
    answer(kept, request(key=b"long"), text="x" * 200)
    assert kept.report()["answers"] == 1


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0.7, "seed": 3}, True),
        ({"temperature": 0.7, "seed": 0}, True),
        ({"temperature": 0.7}, False),
        ({}, False),
    ],
)
def test_only_deterministic_requests_have_a_key(sampling, kept):
    assert bool(cache_key("model", "", (1, 2), sampling)) is kept


ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
KEYS = {
    "same": ("m", "t", (1, 2), GREEDY),
    "model": ("n", "t", (1, 2), GREEDY),
    "tenant": ("m", "u", (1, 2), GREEDY),
    "no tenant": ("mt", "", (1, 2), GREEDY),
    "prompt": ("m", "t", (1, 3), GREEDY),
    "longer prompt": ("m", "t", (1, 2, 2), GREEDY),
    "sampling": ("m", "t", (1, 2), {**GREEDY, "max_tokens": 9}),
    "stop": ("m", "t", (1, 2), {**GREEDY, "stop": ["x"]}),
    "tensor": ("m", "t", TensorPrompt(ROWS, "float32"), GREEDY),
    "another tensor": ("m", "t", TensorPrompt(ROWS + 1, "float32"), GREEDY),
    "another shape": ("m", "t", TensorPrompt(ROWS.reshape(3, 2), "float32"), GREEDY),
}


def test_whatever_differs_has_another_key():
    keys = {name: cache_key(*parts) for name, parts in KEYS.items()}
    assert len(set(keys.values())) == len(keys)
    assert cache_key("m", "t", (1, 2), dict(reversed(GREEDY.items()))) == keys["same"]
    assert cache_key("m", "t", TensorPrompt(ROWS.copy(), "float32"), GREEDY) == keys["tensor"]
