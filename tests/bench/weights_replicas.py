"""The replicas of the weights bench, as Ray actors."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
import time
from pathlib import Path
from typing import Any

_TRIM = ctypes.CDLL(None).malloc_trim


def proportional_bytes(pid: int | str = "self") -> dict[str, int]:
    """Return a process's share of memory, where what it shares with others counts in parts.

    ``all`` of it, and what is ``own``: without the object store and other shared memory.
    """
    kib = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, amount = line.split()[:2]
        kib[name] = int(amount)
    return {"all": 1024 * kib["Pss:"], "own": 1024 * (kib["Pss:"] - kib["Pss_Shmem:"])}


class EncoderReplica:
    """One replica of an encoder, loading from disk or mapping what is shared."""

    def __init__(self, kind: str, folder: str, tokenizer: bool) -> None:
        start = time.perf_counter()
        import torch

        from app.weights.sharing import node_store
        from tests.bench.weights_models import LOADERS

        if kind == "embedder":
            from transformers import AutoModel, BertModel  # noqa: F401
        self.import_seconds = time.perf_counter() - start
        torch.set_num_threads(1)
        self._kind, self._folder = kind, folder
        self._loader = LOADERS[kind]
        self._store = node_store()
        self._store.current(kind)  # starts the store's actor, whose memory is counted from here on
        start = time.perf_counter()
        self._tokenizer = self._tokenize() if tokenizer else None
        self.tokenizer_seconds = time.perf_counter() - start
        self._model: Any = None
        self._swaps: SwapReplica | None = None

    def _load(self) -> Any:
        from torch.utils.hooks import RemovableHandle

        # Hooks are numbered per process, and a replica loads once: as in a fresh one, or the module would seem changed.
        RemovableHandle.next_id = 0
        return self._loader(self._folder)

    def _tokenize(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(Path(self._folder) / "tokenizer.json"))

    def ready(self) -> dict[str, float]:
        """Return what came before the weights, in seconds."""
        return {"imports": self.import_seconds, "tokenizer": self.tokenizer_seconds}

    def disk(self) -> float:
        """Load from disk; return the seconds that took."""
        self.drop()
        start = time.perf_counter()
        self._model = self._load()
        return time.perf_counter() - start

    def shared(self) -> float:
        """Map what is shared (the first caller publishes it); return the seconds that took."""
        from app.weights.sharing import share

        self.drop()
        start = time.perf_counter()
        self._model = share(self._store, self._kind, self._folder, self._load).module
        return time.perf_counter() - start

    def drop(self) -> None:
        """Release the model and give its memory back."""
        self._model = None
        gc.collect()
        _TRIM(0)

    def work(self) -> None:
        """Run a batch of eight short texts, so that memory is in use as in service."""
        import torch

        with torch.inference_mode():
            if self._kind == "embedder":
                ids = torch.arange(256).reshape(8, 32) * 977
                self._model(input_ids=ids, attention_mask=torch.ones_like(ids))
            else:
                self._model(torch.ones(8, 32, 384))
        gc.collect()
        _TRIM(0)

    def memory(self) -> dict[str, int]:
        return proportional_bytes()

    def alternate(self, rounds: int) -> dict[str, list[float]]:
        """Load both ways in turn, in an order drawn anew each round."""
        seconds: dict[str, list[float]] = {"disk": [], "shared": []}
        order, drawn = [("disk", self.disk), ("shared", self.shared)], random.Random(7)
        for _ in range(rounds):
            drawn.shuffle(order)
            for name, load in order:
                seconds[name].append(load())
        return seconds

    def prepare_swaps(self, follow_seconds: float) -> None:
        """Release the encoder and hold the tiny model instead."""
        self.drop()
        self._swaps = SwapReplica(follow_seconds)

    def swaps(self, method: str, *arguments: Any) -> Any:
        """Call the tiny model's replica."""
        return getattr(self._swaps, method)(*arguments)

    def update(self) -> dict[str, Any]:
        """Publish the model with one tensor changed; return what that shipped and took."""
        from app.weights.store import publish
        from app.weights.tensors import take_apart

        self._model = self._load()
        name, parameter = next(
            (n, p) for n, p in self._model.named_parameters() if n.endswith("norm2.weight") or "LayerNorm.weight" in n
        )
        parameter.data = parameter.data + 1
        start = time.perf_counter()
        contents = take_apart(self._model)
        apart = time.perf_counter() - start
        found = publish(self._store, self._kind, "one tensor changed", contents)
        seconds = time.perf_counter() - start
        total = sum(content.nbytes for content in contents.values())
        in_store = sum(content.nbytes for content in contents.values() if hasattr(content.data, "nbytes"))
        return {
            "tensor": name,
            "shipped": found.shipped_bytes,
            "names": list(found.shipped),
            "tensors": len(contents),
            "total": total,
            "in_store": in_store,
            "metadata": _metadata_bytes(found.snapshot),
            "hashing_seconds": apart,
            "seconds": seconds,
        }


def _metadata_bytes(snapshot: Any) -> int:
    """Return the size of all that is not weights: the manifest, and the module without its tensors."""
    import dataclasses
    import pickle

    from app.weights.snapshot import SKELETON

    # Of a reference, its 28 bytes; Ray counts them apart.
    plain = dataclasses.replace(snapshot, packs=dict.fromkeys(snapshot.packs, bytes(28)))
    return len(pickle.dumps(plain)) + snapshot.tensors[SKELETON].nbytes


class SwapReplica:
    """Answers requests on a tiny model while versions are published; checks that each ran on one version."""

    def __init__(self, follow_seconds: float) -> None:
        import torch

        from app.weights import sharing
        from tests.bench.weights_models import TINY_WIDTH, Tiny

        torch.set_num_threads(1)
        sharing._FOLLOW_SECONDS = follow_seconds
        self._ones = torch.ones(1, TINY_WIDTH)
        self._plain = Tiny(1)
        store = sharing.node_store()
        self._held = sharing.share(store, "tiny", "first", lambda: Tiny(1))
        # Mapped like the others, so that the two differ in nothing but versions.
        self._fixed = sharing.open_snapshot(store, self._held.snapshot)
        self._follower = sharing.Follower(self._held, self._adopt)
        self._count_refreshes()
        self._follower.start()

    def _adopt(self, held: Any) -> None:
        self._held = held

    def _count_refreshes(self) -> None:
        """Time what following costs, in CPU seconds of its thread."""
        self.follow_cpu, self.refreshes = 0.0, 0
        inner = self._follower.refresh

        def refresh() -> bool:
            start = time.thread_time()
            try:
                return inner()
            finally:
                self.follow_cpu += time.thread_time() - start
                self.refreshes += 1

        self._follower.refresh = refresh

    def serve(self, requests: int, threads: int) -> dict[str, Any]:
        """Answer requests from several threads at once."""
        import torch

        found: list[dict[str, Any]] = []
        cpu, refreshes = self.follow_cpu, self.refreshes

        def work() -> None:
            with torch.inference_mode():
                found.append(self._blocks(requests // threads))

        workers = [threading.Thread(target=work) for _ in range(threads)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return {
            "requests": sum(one["requests"] for one in found),
            "mixed": sum(one["mixed"] for one in found),
            "versions": sorted(set().union(*(one["versions"] for one in found))),
            "versioned": [seconds for one in found for seconds in one["versioned"]],
            "plain": [seconds for one in found for seconds in one["plain"]],
            "request_cpu": sum(one["cpu"] for one in found),
            "follow_cpu": self.follow_cpu - cpu,
            "refreshes": self.refreshes - refreshes,
            "seconds": time.perf_counter() - start,
        }

    def _blocks(self, requests: int, block: int = 100) -> dict[str, Any]:
        """Blocks of requests with versions and, in an order drawn each time, blocks on a module that never changes."""
        found: dict[str, Any] = {"requests": 0, "mixed": 0, "versions": set(), "versioned": [], "plain": [], "cpu": 0.0}
        drawn = random.Random(7)
        while found["requests"] < requests:
            answers: list[tuple[int, Any]] = []
            for way in drawn.sample(["versioned", "plain"], 2):
                start = time.thread_time()
                given = [
                    self._versioned() if way == "versioned" else (0, self._fixed(self._ones)) for _ in range(block)
                ]
                found[way].append((time.thread_time() - start) / block)
                answers = given if way == "versioned" else answers
            for version, answer in answers:
                found["mixed"] += set(answer.tolist()) != {float(version)}
                found["versions"].add(version)
            found["cpu"] += found["versioned"][-1] * block
            found["requests"] += block
        return found

    def _versioned(self) -> tuple[int, Any]:
        held = self._held
        return held.snapshot.version, held.module(self._ones)

    def in_place(self, requests: int) -> int:
        """Answer requests while another thread writes new versions into the same module; return how many mixed."""
        import torch

        stop = threading.Event()

        def swap() -> None:
            version = 1
            with torch.inference_mode():
                while not stop.wait(0.001):
                    version = version % 100 + 1
                    self._plain.fill(version)

        swapper = threading.Thread(target=swap)
        swapper.start()
        with torch.inference_mode():
            mixed = sum(len(set(self._plain(self._ones).tolist())) > 1 for _ in range(requests))
        stop.set()
        swapper.join()
        return mixed
