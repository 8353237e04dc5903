"""Streams over the fake engine at a fixed rate: CPU per token, delay between tokens, the output guardrail's cost."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.bench.measure import Ratio, Result, ratio
from tests.bench.overhead_rounds import first_tokens, loads_in_turns, middle, milliseconds
from tests.bench.overhead_site import (
    BARE_PORT,
    CHAT,
    HAPROXY_PORT,
    Load,
    Side,
    Site,
    baton_side,
    fake_application,
    fake_only,
    local_config,
    site,
)
from tests.bench.sse_load import gaps, lateness
from tests.bench.streams_levers import SERVES_DEFAULTS, against, environment, haproxy, steps

#: 20 tokens a second and stream: what a large model gives each of its readers.
SECONDS_PER_TOKEN = 0.05
#: No term of the shipped policy begins in these, so every piece goes out as it comes.
WORDS = ("zebras", "graze", "where", "lions", "sleep", "under", "yellow", "river", "trees", "quietly")
MOST_STREAMS = 64
GUARDED, UNGUARDED, BARE = "guarded", "unguarded", "bare server"

#: Streams and tokens of the loads that Serve's modes are compared under.
LEVER_STREAMS, LEVER_TOKENS = 32, 40
SHORT, QUICK_TOKENS, LONG = 1, 25, 60

#: A busy machine of two cores delivers half of what 64 streams ask for, so the least is far below.
BOUNDS: dict[str, tuple[float, float]] = {
    "guardrail_cpu": (0.5, 2.0),
    "cpu_over_bare": (3.0, 90.0),
    "tokens_delivered": (0.15, 1.02),
}


def run(quick: bool) -> Result:
    """Measure the gateway's path, with the output guardrail and without, in turns."""
    result = Result("streams", "Streams: CPU per token and delay between tokens")
    lever = (LEVER_STREAMS, LEVER_TOKENS, 3)
    loads = ((MOST_STREAMS, QUICK_TOKENS, 2),) if quick else ((1, 40, 1), (8, 40, 1), lever, (MOST_STREAMS, LONG, 3))
    with site() as (found, folder):
        sides = start(found, folder, SECONDS_PER_TOKEN)
        measured = {streams: loads_in_turns(found, sides, streams, tokens, rounds) for streams, tokens, rounds in loads}
        short = loads_in_turns(found, sides, MOST_STREAMS, SHORT, 3)
        first = _first(found, sides[1])
    _report(result, measured)
    _split(result, short, measured[MOST_STREAMS], QUICK_TOKENS if quick else LONG)
    if not quick:
        _levers(result, measured[LEVER_STREAMS][GUARDED], first)
    return result


def _split(result: Result, short: Mapping[str, list[Load]], full: Mapping[str, list[Load]], tokens: int) -> None:
    """Tell what an answer takes by itself from what each token of it takes."""
    rows = []
    for name in full:
        one, whole = (median((load.front_cpu + load.engine_cpu) for load in loads[name]) for loads in (short, full))
        each = (whole - one) / MOST_STREAMS / (tokens - SHORT)
        rows.append([name, round(one / MOST_STREAMS * 1e3, 2), round(each * 1e6, 1)])
    columns = ["side", "an answer of one token, ms of CPU", "each further token, us of CPU"]
    result.table(f"CPU of all processes at {MOST_STREAMS} streams: answers and their tokens", columns, rows)


def _first(found: Site, side: Side) -> float:
    return median(first_tokens(found, [side], 15, tokens=1)[side.name])


def _levers(result: Result, own: Sequence[Load], first: float) -> None:
    """Measure Serve's other modes, each in a cluster of its own, beside what Baton's cluster gave."""
    for line in steps():
        result.lever(*line)
    with tempfile.TemporaryDirectory(prefix="baton-ha-") as place:
        modes = {
            "Serve's own defaults: replies by reference, three event loops a process": SERVES_DEFAULTS,
            "HAProxy in place of Serve's proxy (RAY_SERVE_ENABLE_HA_PROXY)": haproxy(HAPROXY_PORT, place),
        }
        for name, values in modes.items():
            with environment(values), site() as (found, folder):
                side = start(found, folder, SECONDS_PER_TOKEN)[1]
                loads = loads_in_turns(found, [side], LEVER_STREAMS, LEVER_TOKENS, 3)[side.name]
                result.lever(name, against(loads, own, _first(found, side), first))


def start(found: Site, folder: Path, seconds_per_token: float) -> list[Side]:
    """Start the fake engine behind Baton and behind a bare server; return the sides."""
    pid = found.spawn(["-m", "tests.bench.overhead_bare", str(BARE_PORT), str(seconds_per_token), *WORDS])
    application = fake_application(seconds_per_token, WORDS)
    found.deploy(local_config(folder, fake_only(folder)), [application])
    found.wait()
    sides = [
        Side(BARE, BARE_PORT, CHAT, "fake", (), (f"|pid={pid}|",)),
        baton_side(GUARDED, GUARDED),
        baton_side(UNGUARDED, UNGUARDED),
    ]
    for side in sides:
        for streams in (1, MOST_STREAMS, MOST_STREAMS):
            found.ask(side, streams, 10)
    return sides


def delays(loads: Sequence[Load]) -> list[float]:
    """Return, for each token, how much longer than the engine's interval it came after the one before; in seconds."""
    return [gap - SECONDS_PER_TOKEN for load in loads for gap in gaps(load.answers)]


def _report(result: Result, measured: Mapping[int, Mapping[str, list[Load]]]) -> None:
    rows = []
    for streams, sides in measured.items():
        for name, loads in sides.items():
            late = [value for load in loads for value in lateness(load.answers, SECONDS_PER_TOKEN)]
            rows.append(
                [
                    streams,
                    name,
                    middle(load.rate for load in loads),
                    middle(load.cpu_microseconds for load in loads),
                    middle(load.front_microseconds for load in loads),
                    milliseconds(delays(loads), 99),
                    milliseconds(late, 50),
                    milliseconds(late, 99),
                ]
            )
    columns = ["streams", "side", "tokens/s", "CPU of all processes, us/token", "CPU without the engine's, us/token"]
    columns += ["delay between tokens p99, ms", "late p50, ms", "late p99, ms"]
    result.table("Streams over the fake engine, 20 tokens/s each", columns, rows)
    _plot(result, measured)
    most = measured[MOST_STREAMS]
    cost = guardrail_cost(most)
    asked = MOST_STREAMS / SECONDS_PER_TOKEN
    result.ratios |= {
        "guardrail_cpu": cost.value,
        "cpu_over_bare": ratio(*([load.cpu_microseconds for load in most[name]] for name in (GUARDED, BARE))).value,
        "tokens_delivered": middle(load.rate for load in most[GUARDED]) / asked,
    }
    _claims(result, most, cost)
    result.notes.append(
        "Late: behind an even schedule through the answer's most punctual token. The bare server has the engine in its "
        "own process: its delay is the floor of engine, client and machine. Client and servers share the cores. All "
        "answers begin at the same instant, and tokens/s counts from there to the end of the last."
    )


def _plot(result: Result, measured: Mapping[int, Mapping[str, list[Load]]]) -> None:
    names = (GUARDED, UNGUARDED)
    series = {
        name: [middle(load.front_microseconds for load in sides[name]) for sides in measured.values()] for name in names
    }
    result.plot(
        "Gateway path: CPU per streamed token",
        "line",
        list(measured),
        series,
        xlabel="streams",
        ylabel="us of CPU per token, all Baton processes but the engine",
    )


def guardrail_cost(most: Mapping[str, list[Load]]) -> Ratio:
    """Return CPU per token with the output guardrail over without it."""
    guarded, unguarded = ([load.front_microseconds for load in most[name]] for name in (GUARDED, UNGUARDED))
    return ratio(guarded, unguarded)


def _claims(result: Result, most: Mapping[str, list[Load]], cost: Ratio) -> None:
    front = {name: middle(load.front_microseconds for load in loads) for name, loads in most.items()}
    late = milliseconds(delays(most[GUARDED]), 99)
    floor = milliseconds(delays(most[BARE]), 99)
    added = front[GUARDED] - front[UNGUARDED]
    result.claim(
        f"Gateway p99 inter-token delay at {MOST_STREAMS} streams",
        "reported",
        f"{late:.1f} ms beyond the engine's interval (bare server: {floor:.1f} ms)",
        True,
    )
    result.claim(
        f"CPU per streamed token at {MOST_STREAMS} streams",
        "reported",
        f"{front[GUARDED]:.0f} us without the engine's",
        True,
    )
    result.claim("Cost of the output guardrail", "reported", f"{cost} of the CPU per token, {added:+.0f} us", True)
