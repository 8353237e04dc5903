"""Both sides of the bench, up at once: the same configuration, documents and models, as Baton and as services."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import orjson

from app.config.local import LocalConfig, serve_config
from app.config.retrieval import RetrieverConfig
from app.config.serve import PIPELINE
from app.ops.local_cluster import ENVIRONMENT, LocalCluster
from app.ops.models import prepare_chat_model
from app.stages.retriever import Retriever, RetrieverStructure
from tests.bench.measure import ROOT
from tests.bench.microservices_store import DIMENSION, HOT, PASSAGES, documents, vocabulary

PORT = 23000
#: Kinds of ``tests/bench/microservices_service.py``: the stages, and what stands in front of them.
STAGES = ("guardrail", "retriever", "assembler", "generator", "postprocessor")
#: Contestant → the kind that its requests enter at.
_GATEWAYS = {"services": "gateway", "whole": "whole", "one": "one"}
#: Models by name: seconds per token of the fake engine. The quick one lets the hand-offs show, the other has the pace
#: of a real engine.
RATES = {"quick-engine": 0.001, "paced-engine": 0.02}
CANDIDATES, TOP_K = 64, 4
#: Length of every answer: the fake engine's sentence.
TOKENS = 10
_START_SECONDS = 180
#: The services keep the memory of a payload for the next one: without this each gives 17 MB back to the kernel and
#: faults them in again, 20 ms of a core per request. Baton's lies in the arena, which stays.
_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "1073741824"}
_FAKE_MODEL = "app.testing.engine:build_fake_model"
_FOLDER = ROOT / ".baton" / "models" / "smollm2"


@dataclass(frozen=True)
class Side:
    """One contestant: where it answers, and the processes that work for it."""

    name: str
    url: str
    pids: tuple[int, ...]


def local_config(index: Path) -> LocalConfig:
    """Return the pipeline of `make run` with the fake embedder, fake engines and retrieval of the whole payload."""
    hot = {"enabled": True, "collections": [HOT], "topK": TOP_K, "candidates": CANDIDATES, "mode": "vector"}
    lance = hot | {"collections": ["docs"], "mode": "hybrid"}
    sampling = {"temperature": 0, "maxTokens": TOKENS}
    half = {"options": {"ray_actor_options": {"num_cpus": 0.5}}}
    raw = {
        "machine": {"port": PORT + 100, "metricsPort": PORT + 101, "dashboardPort": PORT + 102},
        "models": [{"application": name, "engine": {}} for name in RATES],
        "pipeline": {
            "models": {name: {"application": name, "tokenizer": str(_FOLDER)} for name in RATES},
            "embedder": {"kind": "fake", "dimension": DIMENSION},
            "store": {"kind": "lancedb", "uri": str(index)},
            "stages": {
                "gateway": half,
                "retriever": {"placement": "deployment", **half},
                "postprocessor": {"placement": "deployment", **half},
            },
        },
        "settings": {
            "defaultProfile": "hot",
            "profiles": {
                "hot": {"model": "quick-engine", "retrieval": hot, "sampling": sampling},
                "lance": {"model": "quick-engine", "retrieval": lance, "sampling": sampling},
                "paced": {"model": "paced-engine", "retrieval": hot, "sampling": sampling},
            },
        },
    }
    return LocalConfig.parse(raw, "bench")


def questions() -> list[str]:
    """Return questions that find passages."""
    drawn = random.Random(11)
    return [f"What do {' and '.join(drawn.sample(vocabulary(), 6))} have in common?" for _ in range(64)]


def fill_index(config: LocalConfig) -> None:
    """Index the documents that both sides search."""
    shape = config.pipeline
    structure = RetrieverStructure(store=shape.store, embedder=shape.embedder, chunking=shape.chunking)
    retriever = Retriever(structure, RetrieverConfig())
    retriever.start()
    found = retriever.upsert_documents("docs", list(documents()))
    retriever.close()
    if found.passages != PASSAGES:
        raise RuntimeError(f"{found.passages} passages were made of {PASSAGES} documents: one each was meant")


# --- the services -----------------------------------------------------------------------------------------------------


class Services:
    """The rival's processes, one uvicorn each."""

    def __init__(self, config: LocalConfig, folder: Path, kinds: Sequence[str]) -> None:
        self.ports = {kind: PORT + number for number, kind in enumerate(kinds)}
        plan = folder / "plan.json"
        shape = config.pipeline.model_dump(mode="json", by_alias=True)
        settings = config.settings.model_dump(mode="json", by_alias=True)
        plan.write_bytes(orjson.dumps({"ports": self.ports, "shape": shape, "settings": settings, "rates": RATES}))
        # The services get what Baton gives its own processes: one thread per library, and a rare garbage collection.
        paths = os.pathsep.join((str(ROOT / "app" / "ops" / "python_start"), str(ROOT)))
        environment = os.environ | ENVIRONMENT | _MEMORY | {"PYTHONPATH": paths}
        command = [sys.executable, "-m", "tests.bench.microservices_service", str(plan), *kinds]
        self._parent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        self._pids: dict[str, int] = {}

    def wait(self) -> None:
        """Wait until each answers."""
        self._pids = json.loads(self._parent.stdout.readline())
        end = time.monotonic() + _START_SECONDS
        with httpx.Client(timeout=5) as client:
            for kind, port in self.ports.items():
                while not _answers(client, f"http://127.0.0.1:{port}/{'' if kind in STAGES else 'healthz'}"):
                    if time.monotonic() > end or self._parent.poll() is not None:
                        raise RuntimeError(f"the service {kind} did not start")
                    time.sleep(0.2)

    def side(self, name: str, gateway: str) -> Side:
        """Return the contestant whose requests enter at ``gateway``."""
        kinds = (gateway,) if gateway == "one" else (gateway, *STAGES)
        pids = tuple(self._pids[kind] for kind in kinds)
        return Side(name, f"http://127.0.0.1:{self.ports[gateway]}", pids)

    def tree(self) -> set[int]:
        """Return the ids of all the processes."""
        return {self._parent.pid, *self._pids.values()}

    def stop(self) -> None:
        """End every process."""
        self._parent.terminate()
        self._parent.wait(30)
        self._parent.stdout.close()


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False


# --- Baton ------------------------------------------------------------------------------------------------------------


class Baton:
    """A real Ray Serve with the default placements."""

    def __init__(self, config: LocalConfig, folder: Path) -> None:
        self._config = config
        self.cluster = LocalCluster(config, folder)

    def start(self) -> None:
        """Start Ray and deploy: what ``LocalCluster.deploy`` sends, with fake engines as the models' applications."""
        self.cluster.start()
        configuration = serve_config(self._config)
        for application in configuration["applications"]:
            if application["name"] == PIPELINE:
                application["import_path"] = "tests.bench.microservices_store:build_pipeline"
            else:
                rate = {"seconds_per_token": RATES[application["name"]]}
                application |= {"import_path": _FAKE_MODEL, "args": rate}
        machine = self._config.machine
        url = f"http://{machine.host}:{machine.dashboard_port}/api/serve/applications/"
        httpx.put(url, json=configuration, timeout=120).raise_for_status()

    def wait(self) -> None:
        """Wait until every application runs."""
        self.cluster.wait_until_running(lambda text: None, threading.Event())

    def side(self, others: set[int]) -> Side:
        """Return the contestant: every process of the cluster, Ray's own among them."""
        pids = tuple(pid for pid in _descendants(os.getpid()) if pid not in others)
        return Side("baton", self.cluster.url, pids)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            children[int(fields[1])].append(int(folder.name))
    found, left = [], [root]
    while left:
        below = children[left.pop()]
        found += below
        left += below
    return found


@contextmanager
def both_sides(quick: bool) -> Iterator[dict[str, Side]]:
    """Start everything, yield the contestants by name, stop everything; quick, only Baton and the services."""
    prepare_chat_model(_FOLDER)
    gateways = {"services": "gateway"} if quick else _GATEWAYS
    with tempfile.TemporaryDirectory(prefix="baton-micro-") as name:
        folder = Path(name)
        config = local_config(folder / "index")
        services = Services(config, folder, (*STAGES, *gateways.values()))
        baton = Baton(config, folder)
        try:
            baton.start()
            if not quick:
                _apart(fill_index, config)
            services.wait()
            baton.wait()
            sides = [baton.side(services.tree()), *(services.side(*pair) for pair in gateways.items())]
            yield {side.name: side for side in sides}
        finally:
            services.stop()
            baton.cluster.stop()


def _apart(work: Callable[[LocalConfig], None], config: LocalConfig) -> None:
    """Work in a process of its own: LanceDB's threads do not belong into one that forks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(work, config).result()
