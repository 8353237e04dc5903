"""The command line: ``python -m app.ops.rollout run|blue-green|status|abort``. Exit codes: see ``--help``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType

from app.config.rollout import PLACEHOLDERS, Plan, parse_plan
from app.config.yaml_file import read_yaml
from app.errors import BatonError, ConfigError
from app.ops.kube_client import api_client
from app.ops.rollout import gpus
from app.ops.rollout.local import LocalTarget
from app.ops.rollout.machine import stages
from app.ops.rollout.options import parser
from app.ops.rollout.prometheus import Prometheus
from app.ops.rollout.rayservice import KubernetesTarget, serve_config
from app.ops.rollout.report import dry_run, history, values
from app.ops.rollout.runner import Runner, abort
from app.ops.rollout.scrape import Scrape
from app.ops.rollout.state import State

_ENDS = {"promoted": 0, "rolledBack": 1}
AnyTarget = KubernetesTarget | LocalTarget


class _SystemClock:
    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what was asked; return the exit code."""
    options = parser().parse_args(arguments)
    try:
        target = _target(options)
        if options.command == "status":
            return _status(target)
        if options.command == "abort":
            return _abort(target)
        return _run(target, options)
    except ConfigError as error:
        return _failed(str(error), 2)
    except BatonError as error:
        return _failed(str(error), 3)
    except KeyboardInterrupt:
        return _failed("interrupted; the weights stay as they are. Run it again to go on, or abort.", 130)


def _failed(text: str, code: int) -> int:
    print(f"rollout: {text}", file=sys.stderr)
    return code


def _target(options: argparse.Namespace) -> AnyTarget:
    if options.local:
        return LocalTarget(f"http://127.0.0.1:{options.dashboard_port}", options.data.resolve())
    return KubernetesTarget(api_client(options.context), options.namespace, options.name)


def _status(target: AnyTarget) -> int:
    state = target.state()
    if state is None:
        print("no rollout was ever begun here")
        return 0
    for line in history(state):
        print(line)
    return 0


def _abort(target: AnyTarget) -> int:
    state = target.state()
    if state is None or state.over:
        raise ConfigError("No rollout is under way: there is nothing to abort.")
    try:
        ended = abort(target, state, time.time())
    except ConfigError as error:
        raise ConfigError(f"{error} To forget the rollout and change nothing, remove {target.record}.") from None
    print(f"{ended.name} is rolled back: {ended.stable} has all the traffic of {ended.profile}")
    return 0


def _run(target: AnyTarget, options: argparse.Namespace) -> int:
    plan = read_plan(options.plan)
    in_place = bool(getattr(options, "in_place", False))
    _check_command(plan, options)
    selector = _selector(options)
    with closing(_signals(plan, options, selector)) as signals:
        sizes = _sizes(target, plan, in_place)
        if options.dry_run:
            first = target.read(plan).settings
            window = f"of the last {plan.window_seconds} s" if options.prometheus_url else "since the start"
            for line in dry_run(plan, first, stages(plan, in_place, sizes), signals, selector, window):
                print(line)
            return 0
        runner = Runner(plan, target, signals, _SystemClock(), _say)
        return _ended(plan, runner.run(again=options.again, in_place=in_place, sizes=sizes), options)


def read_plan(path: Path) -> Plan:
    """Return the plan of a YAML file. Raises ConfigError."""
    # They are filled in at each look; here they stand for themselves, and others are refused.
    places = {name: f"{{{name}}}" for name in PLACEHOLDERS}
    return parse_plan(read_yaml(path, places, start="copy config/rollout.yaml and change the copy"), f"{path}:")


def _check_command(plan: Plan, options: argparse.Namespace) -> None:
    if (options.command == "blue-green") != (plan.blue_green is not None):
        wanted, other = ("run", "without") if plan.blue_green is None else ("blue-green", "with")
        raise ConfigError(f"A plan {other} blueGreen is run by `{wanted}`.")
    if options.command == "blue-green" and options.local:
        raise ConfigError("blue-green knows releases on Kubernetes only: leave --local out.")
    if options.prometheus_url is None and not options.local:
        raise ConfigError("--prometheus-url is missing: the address of the Prometheus that scrapes the release.")
    if options.prometheus_url is not None and not options.prometheus_url.startswith(("http://", "https://")):
        raise ConfigError("--prometheus-url must begin with http:// or https://.")
    own = plan.own_queries()
    if options.prometheus_url is None and own:
        raise ConfigError(f"{own[0]} is a query, which only a Prometheus answers: name one with --prometheus-url.")


def _sizes(target: AnyTarget, plan: Plan, in_place: bool) -> tuple[int, int]:
    """Return the replicas of blue and green; of a rollout under way, those that it began with. Raises ConfigError."""
    if plan.blue_green is None or isinstance(target, LocalTarget):
        return (0, 0)
    state = target.state()
    if state is not None and not state.over:
        return state.sizes
    service = target.ray_service()
    states = target.replicas()
    found = gpus.need(serve_config(service), plan, states)
    free = gpus.free_gpus(target, service, states) if found.wanted and not in_place else 0.0
    gpus.check(found, free, plan, in_place=in_place)
    return found.sizes


def _selector(options: argparse.Namespace) -> str:
    if options.selector is not None:
        return str(options.selector)
    return "" if options.local else f'namespace="{options.namespace}",job="{options.name}-metrics"'


def _signals(plan: Plan, options: argparse.Namespace, selector: str) -> Prometheus | Scrape:
    if options.prometheus_url:
        return Prometheus(options.prometheus_url, selector, os.environ.get("PROMETHEUS_TOKEN"))
    return Scrape(f"http://127.0.0.1:{options.metrics_port}/metrics", since_start=options.dry_run)


def _ended(plan: Plan, state: State, options: argparse.Namespace) -> int:
    why = state.log[-1].text if state.log else ""
    if state.phase == "promoted":
        _say(f"promoted: {why}")
    else:
        _say(f"rolled back: {why}")
    place = "configuration file" if options.local else "values"
    how = "`make apply`" if options.local else "`helm upgrade`"
    print(f"Commit this to your {place}, or the next {how} puts the old weights back:\n\n{values(plan, state)}", end="")
    return _ENDS[state.phase]


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupted)  # a Job that is deleted gives its Lease back
    sys.exit(main())
