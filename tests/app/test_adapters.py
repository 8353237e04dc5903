"""LoRA adapters as models: two answer from one engine, each in its own way."""

import json

import pytest
import torch
from safetensors.torch import save_file

RANK = 8


def write_adapter(folder, model, seed):
    """Write a random adapter of the queries of all layers, strong enough to change every answer."""
    config = json.loads((model / "config.json").read_text())
    width = config["hidden_size"]
    torch.manual_seed(seed)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, width) * 0.1
        tensors[f"{name}.lora_B.weight"] = torch.randn(width, RANK) * 0.1
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 16, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(about | {"bias": "none", "base_model_name_or_path": "x"}))


@pytest.mark.timeout(900)
def test_adapters_answer_as_models_of_their_own(baton, models, tmp_path):
    for seed, name in enumerate(("loud", "calm")):
        write_adapter(tmp_path / name, models / "smollm2", seed)

    def change(raw):
        engine = raw["models"][0]["engine"]["engine_kwargs"]
        engine |= {"enable_lora": True, "max_lora_rank": RANK, "max_loras": 2}
        engine["lora_modules"] = [
            {"name": f"smollm2:{name}", "path": str(tmp_path / name)} for name in ("loud", "calm")
        ]
        raw["settings"]["adapters"] = {"smollm2": ["loud", "calm"]}
        raw["settings"]["routing"] = {"plain": {"variants": {"tuned": {"weight": 1, "model": "smollm2:loud"}}}}

    try:
        baton.deploy(change)
        baton.wait_for(
            lambda: baton.http.get("/v1/models/smollm2:loud").status_code == 200, 60, "the adapter is listed"
        )
        asked = {"content": "Tell me about the sea.", "max_tokens": 12, "temperature": 0}
        told = {name: baton.chat(model=name, **asked).json() for name in ("smollm2", "smollm2:loud", "smollm2:calm")}
        texts = {name: reply["choices"][0]["message"]["content"] for name, reply in told.items()}
        assert len(set(texts.values())) == 3, texts
        assert told["smollm2:calm"]["baton"]["variant"]["model"] == "smollm2:calm"
        assert baton.chat(model="plain", **asked).json()["baton"]["variant"]["model"] == "smollm2:loud"
        unknown = baton.chat(model="smollm2:nope")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    finally:
        baton.deploy()
