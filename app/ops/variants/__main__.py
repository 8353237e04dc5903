"""Which variant is better, and whether that is more than chance.

    python -m app.ops.variants report --profile fast --url http://prometheus:9090 --period 6h

Reads a Prometheus or, without one, the metrics pages of the nodes (all since their start).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from app.config.profile import Name
from app.errors import BatonError, NotFound, bounded
from app.ops.variants.comparison import Row, rows
from app.ops.variants.estimates import Estimate, is_real
from app.ops.variants.sources import read

_DEFAULT = "http://127.0.0.1:9464/metrics"
#: Columns of a table in a file or a pipe, which have no width of their own.
_WIDTH = 150
_SHARES = frozenset({"errors", "blocked", "grounded"})


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; return the exit code: 0 shown, 1 nothing to compare."""
    options = _parser().parse_args(arguments)
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    try:
        window = read(options.url or [_DEFAULT], options.profile, options.period)
        found = rows(window, options.profile, options.confidence)
        if not found:
            raise NotFound(
                f"No variant of profile {bounded(options.profile)} has answered yet: look at settings.routing, and at "
                "the names of profiles."
            )
        base = _base(found, options.against)
    except BatonError as error:
        print(f"baton: {error}", file=sys.stderr)
        return 1
    console.print(_table(found, options.profile, options.confidence))
    console.print(_differences(found, base, options.confidence))
    return 0


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="variants", description="Compare the variants of a profile.")
    report = found.add_subparsers(required=True).add_parser("report", help="print what is known of each variant")
    report.add_argument("--profile", required=True, type=_name, help="the profile that is routed")
    report.add_argument(
        "--url", action="append", help=f"a Prometheus, or a node's metrics page once per node (default {_DEFAULT})"
    )
    report.add_argument("--period", default="1h", help="how far back a Prometheus is asked (default 1h)")
    report.add_argument("--against", help="the variant to compare with (default: the one with the most answers)")
    report.add_argument(
        "--confidence", type=_confidence, default=0.95, help="how sure the intervals are, 0 to 1 (default 0.95)"
    )
    return found


def _name(text: str) -> str:
    try:
        name: str = TypeAdapter(Name).validate_python(text)
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{bounded(text)} is no name of a profile") from None
    return name


def _confidence(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.5 <= value < 1:
        raise argparse.ArgumentTypeError(f"{bounded(text)} is no number from 0.5 to 1, like 0.95")
    return value


def _base(found: Sequence[Row], named: str | None) -> Row:
    if named is None:
        return found[0]
    base = next((row for row in found if row.variant == named), None)
    if base is None:
        known = ", ".join(row.variant for row in found)
        raise NotFound(f"--against names {bounded(named)}, which has not answered: there are {known}.")
    return base


def _table(found: Sequence[Row], profile: str, confidence: float) -> Table:
    table = Table(title=f"Variants of {profile}, with intervals of {confidence:.0%}", title_justify="left")
    table.add_column("")
    for row in found:
        table.add_column(row.variant, justify="right")
    table.add_row("answers", *(str(row.answers) for row in found))
    for name in found[0].measures:
        table.add_row(_unit(name), *(_shown(name, row.measures[name]) for row in found))
    return table


def _differences(found: Sequence[Row], base: Row, confidence: float) -> Table:
    others = [row for row in found if row is not base]
    table = Table(title=f"Difference to {base.variant}; * is more than chance ({confidence:.0%})", title_justify="left")
    table.add_column("")
    for row in others:
        table.add_column(row.variant, justify="right")
    changes = [row.against(base) for row in others]
    for name in base.measures:
        table.add_row(_unit(name), *(_change(name, change[name]) for change in changes))
    return table


def _unit(name: str) -> str:
    return f"{name}, %" if name in _SHARES else f"{name}, ms"


def _shown(name: str, found: Estimate | None) -> str:
    if found is None:
        return "–"
    factor, digits = (100, 1) if name in _SHARES else (1, 0)
    shown = (f"{number * factor:.{digits}f}".replace("inf", "∞") for number in (found.value, found.low, found.high))
    value, low, high = shown
    return f"{value} ({low} to {high})"


def _change(name: str, found: Estimate | None) -> str:
    mark = "* " if found is not None and is_real(found) else ""
    return mark + _shown(name, found)


if __name__ == "__main__":
    sys.exit(main())
