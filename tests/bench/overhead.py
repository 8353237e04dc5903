"""What Baton adds: to a bare server and to `vllm serve`, beside what Ray Serve LLM's stock OpenAI ingress adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.config.local import LocalConfig
from tests.bench import overhead_real as real
from tests.bench.measure import Result
from tests.bench.overhead_report import BARE, BATON, STOCK, Fake, Real, report_fake, report_real
from tests.bench.overhead_rounds import first_tokens, loads_in_turns, stage_shares
from tests.bench.overhead_site import (
    BARE_PORT,
    CHAT,
    PORT,
    VLLM_PORT,
    Side,
    Site,
    baton_side,
    fake_application,
    fake_only,
    local_config,
    site,
)
from tests.bench.streams import SECONDS_PER_TOKEN, WORDS

_MODEL = "fake"

#: Wide: the ratios of a quiet and of a busy machine lie within.
BOUNDS: dict[str, tuple[float, float]] = {
    "fake_baton_over_bare_first_token": (0.5, 5.0),
    "fake_stock_over_baton_first_token": (0.5, 10.0),
    "fake_stock_over_baton_cpu_at_8": (0.4, 10.0),
}


def run(quick: bool) -> Result:
    """Measure all sides in turns; quick: the fake engine alone."""
    result = Result("overhead", "Overhead over a bare engine, and beside the stock ingress")
    with site() as (found, folder):
        if quick:
            sides = _start_fake(found, local_config(folder, fake_only(folder)), [], {})
            found.wait()
            report_fake(result, _measure_fake(found, sides, ((8, 30, 2),), rounds=12))
        else:
            _run_whole(result, found, folder)
    return result


def _run_whole(result: Result, found: Site, folder: Path) -> None:
    config = local_config(folder, real.whole(folder))
    vllm = real.spawn_vllm(found, config)
    sides = _start_fake(found, config, [real.shared_application(config)], {real.MODEL: f"model-{real.MODEL}"})
    found.wait()
    found.wait_for_port(VLLM_PORT, CHAT)
    fake = _measure_fake(found, sides, ((1, 40, 2), (8, 40, 2), (32, 40, 2), (64, 40, 2)), rounds=25)
    report_fake(result, fake)
    report_real(result, _measure_real(found, folder, real.sides(vllm)))


def _start_fake(
    found: Site, config: LocalConfig, applications: list[dict[str, Any]], elsewhere: dict[str, str]
) -> list[Side]:
    pid = found.spawn(["-m", "tests.bench.overhead_bare", str(BARE_PORT), str(SECONDS_PER_TOKEN), *WORDS])
    fake = {"seconds_per_token": SECONDS_PER_TOKEN, "words": list(WORDS)}
    stock = {
        "name": "stock",
        "import_path": "tests.bench.overhead_stock:build_stock",
        "route_prefix": "/stock",
        "args": {"model": _MODEL, "fake": fake, "elsewhere": elsewhere},
    }
    found.deploy(config, [*applications, fake_application(SECONDS_PER_TOKEN, WORDS), stock])
    front = ("ray::ServeReplica:stock:ingress", "ray::ProxyActor")
    return [
        Side(BARE, BARE_PORT, CHAT, _MODEL, (), (f"|pid={pid}|",)),
        baton_side(BATON),
        Side(STOCK, PORT, f"/stock{CHAT}", _MODEL, front, ("ray::ServeReplica:stock:server",)),
    ]


def _measure_fake(found: Site, sides: list[Side], loads: tuple[tuple[int, int, int], ...], rounds: int) -> Fake:
    most = max(streams for streams, _, _ in loads)
    for side in sides:
        found.ask(side, 1, 5)
        found.ask(side, most, 10)
    firsts = first_tokens(found, sides, rounds, tokens=1)
    measured = {streams: loads_in_turns(found, sides, streams, tokens, times) for streams, tokens, times in loads}
    return Fake(firsts, measured, stage_shares(found, sides[1], 8, tokens=1))


def _measure_real(found: Site, folder: Path, sides: list[Side]) -> Real:
    for side in sides:
        found.ask(side, 1, 4)
        found.ask(side, 8, 4)
    firsts = first_tokens(found, sides, 12, tokens=2)
    loads = {
        streams: loads_in_turns(found, sides, streams, tokens, times, real.QUIET_SECONDS)
        for streams, tokens, times in ((1, 24, 2), (8, 16, 3), (32, 8, 1), (64, 8, 1))
    }
    real.index(folder)
    return Real(firsts, loads, stage_shares(found, real.RETRIEVAL, 4, tokens=8))
