"""What traces cost: the same answers with and without, switched in place on one running pipeline, in turns."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median

from tests.bench.measure import Ratio, Result, ratio
from tests.bench.overhead_site import Load, baton_side, fake_application, fake_only, local_config, site

COLLECTOR_PORT = 22030
OFF, ALL = "off", "every request"
SHARES = {OFF: 0.0, ALL: 1.0}
#: An engine that is never waited for: what limits the answers is Baton's own work.
SECONDS_PER_TOKEN, STREAMS, TOKENS = 0.001, 32, 40
ROUNDS, QUICK_ROUNDS = 24, 4
#: How long new settings take to be in force in every replica.
_SETTLE_SECONDS = 2.5
_GOAL = 0.97

BOUNDS: dict[str, tuple[float, float]] = {"cpu_traced": (0.7, 1.5)}


def run(quick: bool) -> Result:
    """Measure answers per second and CPU per answer with each share of traced requests."""
    result = Result("observing", "Traces: what they cost")
    loads: dict[str, list[Load]] = {name: [] for name in SHARES}
    with site() as (found, folder):
        found.spawn(["-m", "tests.bench.observing", str(COLLECTOR_PORT)])
        application = fake_application(SECONDS_PER_TOKEN, ["zebras", "graze", "quietly"])
        config = local_config(folder, fake_only(folder))
        found.deploy(config, [application])
        found.wait()
        found.wait_for_port(COLLECTOR_PORT, "/v1/traces")
        side = baton_side()
        for _ in range(3):
            found.ask(side, STREAMS, TOKENS)
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            for name in _turned(list(SHARES), number):
                found.send(_traced(config, SHARES[name]), [application])
                time.sleep(_SETTLE_SECONDS)
                found.ask(side, 4, 4)
                loads[name].append(found.ask(side, STREAMS, TOKENS))
    _report(result, loads)
    return result


def _turned(names: list[str], number: int) -> list[str]:
    turn = number % len(names)
    return [*names[turn:], *names[:turn]]


def _traced(config, share: float):
    traces = config.settings.traces.model_copy(
        update={"endpoint": f"http://127.0.0.1:{COLLECTOR_PORT}/v1/traces" if share else "", "sampling_ratio": share}
    )
    return config.model_copy(update={"settings": config.settings.model_copy(update={"traces": traces})})


def _report(result: Result, loads: dict[str, list[Load]]) -> None:
    rows = []
    for name, found in loads.items():
        rows.append([name, round(_rate(found), 1), round(_cpu(found), 2), str(_ratio(found, loads[OFF]))])
    columns = ["traced", "answers per second", "ms of CPU per answer, without the engine's", "CPU against off"]
    result.table(
        f"{STREAMS} answers of {TOKENS} tokens at once, fake engine, medians of rounds in turns", columns, rows
    )
    cpu = _ratio(loads[ALL], loads[OFF])
    kept = Ratio(1 / cpu.value, 1 / cpu.high, 1 / cpu.low)
    reason = "Seven spans of Python per answer; sample, and with a real engine the share is smaller"
    result.claim(
        "Throughput with every request traced, where Baton's own work is the limit (by CPU per answer)",
        f">= {_GOAL:.0%}",
        str(kept),
        kept.value >= _GOAL,
        reason="" if kept.value >= _GOAL else reason,
    )
    result.ratios["cpu_traced"] = cpu.value


def _ratio(one: Sequence[Load], other: Sequence[Load]) -> Ratio:
    return ratio([load.front_cpu for load in one], [load.front_cpu for load in other])


def _rate(loads: Sequence[Load]) -> float:
    return median(STREAMS / load.seconds for load in loads)


def _cpu(loads: Sequence[Load]) -> float:
    return median(load.front_cpu for load in loads) / STREAMS * 1000


class _Collector(BaseHTTPRequestHandler):
    """Takes what comes and says yes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Collector).serve_forever()
