"""Tables, plots, ratios and claims of the overhead bench."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.bench.measure import Result, ratio
from tests.bench.overhead_rounds import Firsts, Loads, middle, milliseconds
from tests.bench.streams import SECONDS_PER_TOKEN

BARE, BATON, STOCK, VLLM = "bare server", "Baton", "stock ingress", "vllm serve"
_MOST_MILLISECONDS, _MOST_SHARE = 5.0, 0.05


@dataclass(frozen=True)
class Fake:
    """What was measured over the fake engine. ``stages``: median milliseconds of one short answer."""

    firsts: Firsts
    loads: Loads
    stages: dict[str, float]


@dataclass(frozen=True)
class Real:
    """What was measured over the real engine. ``stages``: median milliseconds with retrieval on."""

    firsts: Firsts
    loads: Loads
    stages: dict[str, float]


def report_fake(result: Result, fake: Fake) -> None:
    """Put the figures of the fake engine into the result."""
    rate = round(1 / SECONDS_PER_TOKEN)
    _first_table(
        result, f"Time to first token, one client, fake engine ({SECONDS_PER_TOKEN * 1000:.0f} ms)", fake.firsts
    )
    _load_table(result, f"Streams over the fake engine at {rate} tokens/s each", fake.loads)
    _stage_table(result, "Retrieval off, fake engine: one answer of one token, by stage", fake.stages)
    _ratios(result, "fake", fake.firsts, fake.loads)
    _plots(result, fake.loads)
    _ahead_of_stock(result, "fake engine", fake.firsts, fake.loads)
    result.notes.append(
        "Fake engine: the same FakeEngine runs inside the bare server, behind Serve for Baton, and inside the stock "
        "LLMServer for the stock ingress, which keeps its default batching interval of 50 ms. Baton judges every "
        "request and answer with its shipped policy; the other sides have none. All sides and the client share the "
        "cores; they are asked in turns."
    )


def report_real(result: Result, real: Real) -> None:
    """Put the figures of the real engine into the result."""
    _first_table(result, "Time to first token, one client, vLLM on the CPU (SmolLM2-135M)", real.firsts)
    _load_table(result, "Streams over vLLM on the CPU (SmolLM2-135M)", real.loads)
    _ratios(result, "real", real.firsts, real.loads, VLLM)
    _behind_bare(result, real)
    _ahead_of_stock(result, "vLLM", real.firsts, real.loads)
    _stage_table(result, "With retrieval on: one answer of 8 tokens, by stage", real.stages)
    result.notes.append(
        "Real engine: `vllm serve` has an engine of its own; Baton and the stock ingress ask one shared engine process "
        "with the same arguments, each through its own front. The sides are asked in turns, and an engine that is not "
        "asked computes nothing."
    )


def _first_table(result: Result, title: str, firsts: Firsts) -> None:
    rows = [[name, milliseconds(values, 50), milliseconds(values, 99), len(values)] for name, values in firsts.items()]
    result.table(title, ["side", "p50, ms", "p99, ms", "answers"], rows)


def _load_table(result: Result, title: str, loads: Loads) -> None:
    rows = [
        [
            streams,
            name,
            middle(load.rate for load in found),
            middle(load.cpu_microseconds for load in found),
            middle(load.front_microseconds for load in found),
        ]
        for streams, sides in loads.items()
        for name, found in sides.items()
    ]
    result.table(title, ["streams", "side", "tokens/s", "CPU, us/token", "of it without the engine's, us/token"], rows)


def _stage_table(result: Result, title: str, stages: dict[str, float]) -> None:
    total = stages["total"]
    rows = [[name, round(value, 1), round(100 * value / total)] for name, value in stages.items()]
    result.table(title, ["stage", "ms", "% of the gateway's total"], rows)


def _plots(result: Result, loads: Loads) -> None:
    names = list(next(iter(loads.values())))
    for what, label in (("rate", "tokens per second"), ("cpu_microseconds", "CPU of all processes, us per token")):
        series = {
            name: [median(getattr(load, what) for load in sides[name]) for sides in loads.values()] for name in names
        }
        result.plot(f"Fake engine: {label}", "line", list(loads), series, xlabel="streams", ylabel=label)


def _ratios(result: Result, engine: str, firsts: Firsts, loads: Loads, bare: str = BARE) -> None:
    result.ratios[f"{engine}_baton_over_bare_first_token"] = ratio(firsts[BATON], firsts[bare]).value
    result.ratios[f"{engine}_stock_over_baton_first_token"] = ratio(firsts[STOCK], firsts[BATON]).value
    for streams, sides in loads.items():
        for name, what, sooner in (("cpu", "cpu_microseconds", STOCK), ("seconds", "seconds", STOCK)):
            slow, fast = ([getattr(load, what) for load in sides[side]] for side in (sooner, BATON))
            result.ratios[f"{engine}_stock_over_baton_{name}_at_{streams}"] = ratio(slow, fast).value
        seconds = [[load.seconds for load in sides[side]] for side in (BATON, bare)]
        result.ratios[f"{engine}_baton_over_bare_seconds_at_{streams}"] = ratio(*seconds).value


def _behind_bare(result: Result, real: Real) -> None:
    behind = (median(real.firsts[BATON]) - median(real.firsts[VLLM])) * 1000
    share = median(real.firsts[BATON]) / median(real.firsts[VLLM]) - 1
    met = behind <= _MOST_MILLISECONDS and share <= _MOST_SHARE
    result.claim(
        "Time to first token behind bare `vllm serve`, guardrails on, retrieval off",
        f"at most {_MOST_MILLISECONDS:.0f} ms and {_MOST_SHARE:.0%}",
        f"{behind:+.1f} ms, {share:+.1%}",
        met,
        reason="" if met else "two HTTP and Serve hops more on the cores that also compute the model",
    )
    for streams, sides in real.loads.items():
        behind_rate = 1 - middle(load.rate for load in sides[BATON]) / middle(load.rate for load in sides[VLLM])
        good = behind_rate <= _MOST_SHARE
        result.claim(
            f"Output tokens per second behind bare `vllm serve` at {_streams(streams)}",
            f"at most {_MOST_SHARE:.0%}",
            f"{behind_rate:.1%} behind" if behind_rate > 0 else f"{-behind_rate:.1%} ahead",
            good,
            reason=""
            if good
            else "the gateway's and Serve's CPU per token is taken from the cores that compute the model",
        )


def _ahead_of_stock(result: Result, engine: str, firsts: Firsts, loads: Loads) -> None:
    first = ratio(firsts[STOCK], firsts[BATON])
    _against_stock(result, f"Time to first token, stock ingress over Baton ({engine})", first.value, str(first))
    for streams, sides in loads.items():
        for what, label in (("seconds", "Time for the same tokens"), ("cpu_microseconds", "CPU per token")):
            slow, fast = ([getattr(load, what) for load in sides[side]] for side in (STOCK, BATON))
            found = ratio(slow, fast)
            _against_stock(
                result,
                f"{label} at {_streams(streams)}, stock over Baton ({engine})",
                found.value,
                str(found),
            )


def _streams(number: int) -> str:
    return f"{number} stream" if number == 1 else f"{number} streams"


def _against_stock(result: Result, what: str, value: float, shown: str) -> None:
    # Within two parts in a hundred the two are equal: both then keep up with the engine.
    met = value >= 0.98
    reason = "" if met else "the stock ingress judges nothing, and sends up to 50 ms of tokens as one message"
    result.claim(what, "ahead (over 1x)", shown, met, reason=reason)
