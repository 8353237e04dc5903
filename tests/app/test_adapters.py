"""An engine with other arguments: LoRA adapters as models, and the order of priority classes in its own queue."""

import json
import threading

import httpx
import pytest
import torch
from safetensors.torch import save_file

from tests.app.baton import MODEL

RANK = 8


def write_adapter(folder, model, seed):
    """Write a random adapter of the queries of all layers, strong enough to change every answer."""
    config = json.loads((model / "config.json").read_text())
    width = config["hidden_size"]
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, width) * 0.3
        tensors[f"{name}.lora_B.weight"] = torch.randn(width, RANK) * 0.3
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(about | {"bias": "none", "base_model_name_or_path": "x"}))


@pytest.fixture(scope="module")
def other(baton, models, tmp_path_factory):
    """The running pipeline with two adapters, on an engine that works on one answer at a time."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("loud", "calm")):
        write_adapter(folder / name, models / "smollm2", seed)

    def change(raw):
        engine = raw["models"][0]["engine"]["engine_kwargs"]
        engine |= {"enable_lora": True, "max_lora_rank": RANK, "max_loras": 2, "max_num_seqs": 1}
        engine["lora_modules"] = [{"name": f"smollm2:{name}", "path": str(folder / name)} for name in ("loud", "calm")]
        raw["models"][0]["options"]["max_ongoing_requests"] = 8
        raw["settings"]["adapters"] = {"smollm2": ["loud", "calm"]}
        raw["settings"]["routing"] = {"plain": {"variants": {"tuned": {"weight": 1, "model": "smollm2:loud"}}}}
        raw["settings"]["priorities"] = {"interactive": {}, "batch": {"enginePriority": 10}}

    try:
        baton.deploy(change)
        baton.wait_for(
            lambda: baton.http.get("/v1/models/smollm2:loud").status_code == 200, 60, "the adapter is listed"
        )
        yield baton
    finally:
        baton.deploy()


@pytest.mark.timeout(900)
def test_adapters_answer_as_models_of_their_own(other):
    asked = {"content": "Tell me about the sea.", "max_tokens": 12, "temperature": 0}
    told = {name: other.chat(model=name, **asked).json() for name in ("smollm2", "smollm2:loud", "smollm2:calm")}
    texts = {name: reply["choices"][0]["message"]["content"] for name, reply in told.items()}
    assert len(set(texts.values())) == 3, texts
    assert told["smollm2:calm"]["baton"]["variant"]["model"] == "smollm2:calm"
    assert other.chat(model="plain", **asked).json()["baton"]["variant"]["model"] == "smollm2:loud"
    unknown = other.chat(model="smollm2:nope")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.timeout(900)
def test_the_engine_s_scheduler_takes_the_higher_class_first(other):
    """Three jobs of batch wait in the engine's own queue when one of interactive comes."""
    ended = []

    def ask(name, tokens, **body):
        messages = [{"role": "user", "content": name}]
        body |= {"model": MODEL, "messages": messages, "timeout_seconds": 400}
        body |= {"max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
        assert httpx.post(f"{other.base}/v1/chat/completions", json=body, timeout=500).status_code == 200
        ended.append(name)

    def begin(name, tokens, **body):
        thread = threading.Thread(target=ask, args=(name, tokens), kwargs=body)
        thread.start()
        return thread

    threads = [begin("first", 800)]
    other.wait_for(lambda: other.scrape("ray_vllm_num_requests_running") == 1, 60, "the first is at work")
    threads += [begin(f"batch {number}", 10, priority="batch") for number in range(3)]
    waiting = "ray_vllm_num_requests_waiting"
    other.wait_for(lambda: other.scrape(waiting) >= 3, 60, "the batch jobs lie in the engine's own queue")
    assert ended == []
    threads.append(begin("late", 10))
    for thread in threads:
        thread.join()
    assert len(ended) == 5
    assert ended.index("late") < min(ended.index(f"batch {number}") for number in range(3)), ended
