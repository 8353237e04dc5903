"""Runs the benches: `python -m tests.bench [--quick] [name …]`.

Whole, each bench writes `tests/bench/results/<name>.json`, and the tables and plots are drawn anew. Quick, each checks
its ratios against wide bounds and nothing is written: a lost zero-copy path or a doubled overhead ends with status 1.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime

from tests.bench.measure import ROOT, commit, machine
from tests.bench.report import write_report

RESULTS = ROOT / "tests" / "bench" / "results"
#: Each is a module of `tests/bench` with `run(quick: bool) -> Result` and `BOUNDS`, ratio → (least, most).
BENCHES = ("handoff", "overhead", "microservices", "streams", "observing", "batching", "weights", "guardrail")


def measure(name: str, quick: bool) -> int:
    """Run one bench in this process; return the number of ratios out of bounds."""
    bench = importlib.import_module(f"tests.bench.{name}")
    facts = machine()
    result = bench.run(quick)
    if not quick:
        RESULTS.mkdir(exist_ok=True)
        stamp = {"commit": commit(), "date": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": facts}
        text = json.dumps(asdict(result) | stamp, indent=1, ensure_ascii=False)
        (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return check(name, result.ratios, bench.BOUNDS)


def check(name: str, ratios: dict[str, float], bounds: dict[str, tuple[float, float]]) -> int:
    """Print each bounded ratio; return how many lie outside, or were not measured at all."""
    outside = 0
    for ratio, (least, most) in bounds.items():
        found = ratios.get(ratio)
        good = found is not None and least <= found <= most
        outside += not good
        shown = "missing" if found is None else f"{found:.3g}"
        print(f"  {'ok  ' if good else 'FAIL'} {name}: {ratio} = {shown} (bounds {least:g} to {most:g})", flush=True)
    return outside


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHES)}; all when left out")
    parser.add_argument("--quick", action="store_true", help="check ratios against wide bounds, write nothing")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHES))
    if unknown:
        parser.error(f"there is no bench {unknown[0]!r}: choose from {', '.join(BENCHES)}")
    if options.here:
        return min(1, sum(measure(name, options.quick) for name in options.names))
    failed = [name for name in options.names or BENCHES if not run_apart(name, options.quick)]
    if not options.quick:
        write_report(RESULTS)
    print(f"benches out of bounds: {', '.join(failed)}" if failed else "all benches are within bounds")
    return 1 if failed else 0


def run_apart(name: str, quick: bool) -> bool:
    """Run one bench in a process of its own, so that none inherits another's memory, threads or cluster."""
    print(f"{name} …", flush=True)
    start = time.monotonic()
    command = [sys.executable, "-m", "tests.bench", "--here", name, *(["--quick"] if quick else [])]
    good = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
