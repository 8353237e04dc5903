"""Sends a changed configuration to the running pipeline: ``python -m app.ops.apply`` (what ``make apply`` calls).

What stands under ``settings`` changes in place; what stands under ``pipeline`` restarts the pipeline's replicas, and a
changed engine restarts that engine. Collections are not indexed anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from app.config.serve import PIPELINE
from app.errors import BatonError, ConfigError
from app.ops import config_checks, preflight
from app.ops.local_cluster import LocalCluster
from app.ops.run import Progress, parser, prepared_models, read_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Send it and wait until it serves; return the exit code: 0 in force, 1 failed, 2 refused, 130 on Ctrl-C."""
    options = parser("Send a changed configuration to the running pipeline.").parse_args(arguments)
    progress = Progress()
    try:
        _apply(options, progress)
    except ConfigError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 2
    except BatonError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("baton: interrupted; what was sent already stays sent, and comes into force.", file=sys.stderr)
        return 130
    progress.say(
        "the configuration is in force; a gateway that refuses its settings says so in its log and keeps the old"
    )
    return 0


def _apply(options: argparse.Namespace, progress: Progress) -> None:
    config = read_config(options)
    preflight.check_ports(config.machine)
    prepared = prepared_models(options.data)
    preflight.check_files(config, prepared)
    config_checks.check_config(config)
    cluster = LocalCluster(config, options.data)
    running = cluster.statuses()
    if not running:
        raise ConfigError(
            f"No Baton answers at port {config.machine.dashboard_port} of {config.machine.host}: start it with "
            "`make run`, or name the port of its dashboard with --dashboard-port."
        )
    cluster.check_port()
    preflight.check_prepared(config, prepared, options.data)
    known = cluster.collections()
    for line in () if known is None else config_checks.missing_collections(config, known):
        progress.say(line)
    for line in config_checks.moving_stages(config, running.get(PIPELINE, {}).get("deployments") or ()):
        progress.say(line)
    cluster.deploy()
    cluster.settle(progress.say)


if __name__ == "__main__":
    sys.exit(main())
