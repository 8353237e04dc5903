"""The command line's options."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.config.local import ROOT
from app.ops.arguments import port

_EXIT_CODES = """exit codes: 0 promoted (or shown, or nothing to do), 1 rolled back, 2 bad input: nothing was changed,
3 held: it stopped without a decision and the weights stay (run it again to go on, or abort), 130 on Ctrl-C (as 3)"""


def parser() -> argparse.ArgumentParser:
    """Return the parser."""
    found = argparse.ArgumentParser(
        prog="python -m app.ops.rollout",
        description="Move traffic from one variant of a profile to another, in steps that metrics judge.",
        epilog=_EXIT_CODES,
    )
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("run", "run a plan, or go on with it where another runner stopped"),
        ("blue-green", "the same between two model applications, whose replicas come and go with it"),
    ):
        command = commands.add_parser(name, help=text, epilog=_EXIT_CODES)
        command.add_argument("--plan", type=Path, required=True, metavar="FILE", help="the plan (docs/rollout.md)")
        command.add_argument("--dry-run", action="store_true", help="show steps and queries, and change nothing")
        command.add_argument("--again", action="store_true", help="begin a plan anew that ended")
        _add_target(command)
        _add_prometheus(command)
        if name == "blue-green":
            command.add_argument("--in-place", action="store_true", help="without spare GPUs: one replica at a time")
    for name, text in (("status", "show the history"), ("abort", "roll back now, whoever runs the rollout")):
        _add_target(commands.add_parser(name, help=text, epilog=_EXIT_CODES))
    return found


def _add_target(command: argparse.ArgumentParser) -> None:
    cluster = command.add_argument_group("a release on Kubernetes")
    cluster.add_argument("--namespace", default="default", help="its namespace (default: %(default)s)")
    cluster.add_argument("--name", default="baton", help="name of its RayService (default: %(default)s)")
    cluster.add_argument("--context", help="context of the kubeconfig; unset: the current one")
    local = command.add_argument_group("a pipeline on this machine, in place of a release")
    local.add_argument("--local", action="store_true", help="what `make run` started")
    local.add_argument("--data", type=Path, default=ROOT / ".baton", help="its folder, which keeps the record")
    local.add_argument("--dashboard-port", type=port, default=8265, help="port of its dashboard (default: %(default)s)")
    local.add_argument("--metrics-port", type=port, default=9464, help="port of its metrics (default: %(default)s)")


def _add_prometheus(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--prometheus-url",
        help="address of Prometheus; its token, if any, in PROMETHEUS_TOKEN. With --local it may be left out: then the "
        "built-in gates are read off the metrics page",
    )
    command.add_argument(
        "--selector", help="the release's matchers in built-in queries (default: its namespace and its metrics' job)"
    )
