"""The command line: ``python -m app.ops.doctor --values FILE [--namespace NS] [--release NAME]``.

Exit codes: 0 no fault (there may be warnings); 1 a fault was found, or the cluster does not answer; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import yaml

from app.config.chart.values import ChartValues
from app.errors import BatonError, ConfigError, bounded
from app.ops.doctor.access import check_image, check_secrets
from app.ops.doctor.cluster import Cluster, Forbidden, connect
from app.ops.doctor.findings import Finding, as_json, as_text, warning
from app.ops.doctor.models import check_cache, check_hub, check_parallelism
from app.ops.doctor.nodes import check_classes, check_groups
from app.ops.doctor.operator import check_definitions, check_gateway_classes, check_operator, check_release
from app.ops.doctor.storage import check_claims, check_image_volume, check_pod_security

Check = Callable[[ChartValues, Cluster], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_definitions,
    check_operator,
    check_gateway_classes,
    check_release,
    check_groups,
    check_classes,
    check_parallelism,
    check_claims,
    check_image_volume,
    check_pod_security,
    check_secrets,
    check_image,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Look at the cluster and tell what was found; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        values = read_values(options.values)
    except ConfigError as error:
        print(f"doctor: {error}", file=sys.stderr)
        return 2
    try:
        findings = examine(values, connect(options.namespace, options.release, options.context), options.cache)
    except BatonError as error:
        print(f"doctor: {error}", file=sys.stderr)
        return 1
    print(as_json(findings) if options.json else as_text(findings))
    return 1 if any(finding.level == "fault" for finding in findings) else 0


def examine(values: ChartValues, cluster: Cluster, cache: Path | None = None) -> list[Finding]:
    """Return what all checks find. What may not be read is a warning of its own."""
    findings: list[Finding] = []
    checks: tuple[Check, ...] = (*CHECKS, partial(check_hub, folder=cache), partial(check_cache, folder=cache))
    for check in checks:
        try:
            findings.extend(check(values, cluster))
        except Forbidden as error:
            findings.append(
                warning(
                    "permissions",
                    f"this account may not read {error.what}: what depends on it was not looked at",
                    "run the doctor with an account that may read it",
                )
            )
    return list(dict.fromkeys(findings))


def read_values(paths: Sequence[Path]) -> ChartValues:
    """Return the values of these files over the chart's own, later over earlier, as Helm does. Raises ConfigError."""
    merged: dict[str, object] = ChartValues().model_dump(mode="json", by_alias=True)
    for path in paths:
        try:
            raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from None
        if not isinstance(raw, dict | None):
            raise ConfigError(f"{path} holds {bounded(raw)}, and values are a map of keys")
        merged = _merge(merged, raw or {})
    known = {key: value for key, value in merged.items() if key not in {"global", "enabled"}}
    return ChartValues.parse(known, "values")


def _merge(under: dict[str, object], over: dict[str, object]) -> dict[str, object]:
    found = dict(under)
    for key, value in over.items():
        below = found.get(key)
        if value is None:
            found.pop(key, None)  # null takes a key away
        elif isinstance(below, dict) and isinstance(value, dict):
            found[key] = _merge(below, value)
        else:
            found[key] = value
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app.ops.doctor",
        description="Tell whether a cluster has what a set of the chart's values needs, and what to do if not.",
    )
    parser.add_argument(
        "--values",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="values of the release; may be repeated",
    )
    parser.add_argument("--namespace", default="default", help="namespace of the release (default: %(default)s)")
    parser.add_argument("--release", default="baton", help="name of the release (default: %(default)s)")
    parser.add_argument("--context", help="context of the kubeconfig; unset: the current one")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="the model cache, where it is mounted here: its free space counts"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
