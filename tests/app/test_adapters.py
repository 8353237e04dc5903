"""An engine with other arguments: LoRA adapters as models, and the order of priority classes in its own queue."""

import json
import threading

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
        raw["settings"].setdefault("limits", {})["maxTokens"] = 8000
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

    def ask(name, **body):
        assert other.chat(name, max_tokens=10, timeout_seconds=400, **body).status_code == 200
        ended.append(name)

    def begin(name, **body):
        thread = threading.Thread(target=ask, args=(name,), kwargs=body)
        thread.start()
        return thread

    def lie_in_the_engine(number):
        other.wait_for(lambda: other.scrape("ray_vllm_num_requests_waiting") >= number, 90, f"{number} wait")

    # An answer without an end holds the engine until its caller hangs up: nothing here hangs on how fast it is.
    long = {"max_tokens": 7900, "min_tokens": 7900, "ignore_eos": True, "timeout_seconds": 400, "stream": True}
    holder, response = other.open_stream({"model": MODEL, "messages": [{"role": "user", "content": "first"}]} | long)
    try:
        assert response.read(1)
        threads = [begin(f"batch {number}", priority="batch") for number in range(3)]
        lie_in_the_engine(3)
        threads.append(begin("late"))
        lie_in_the_engine(4)
        assert ended == []
    finally:
        holder.close()
    for thread in threads:
        thread.join()
    assert len(ended) == 4
    assert ended[0] == "late", ended
