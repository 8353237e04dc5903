"""Variants side by side: who gets what, how it ends, how good and how fast it is, and which differences are real."""

from __future__ import annotations

from dashboards.board import SCOPE, Board, Panel, Row
from dashboards.boards import serve
from dashboards.boards.asks import VARIANT, quantile, rate
from dashboards.promql import ANSWERING, COUNTED, HURT
from dashboards.promql import rate as rate_over

_BY = ("profile", "variant")
_NAME = "{{profile}} {{variant}}"
_ROUTED = ('variant!=""', VARIANT)
_OUTCOMES = "ray_baton_variant_outcomes_total"
#: Answers that somebody waited for, by how they ended; what the caller left or got wrong says nothing of a variant.
_REAL = ('way!="shadow"', 'outcome!~"refused|cancelled"', VARIANT)
_GROUNDING = "ray_baton_grounding"
#: Differences are judged over all that the board shows.
_RANGE = "$__range"


def _share(part: str, whole: str) -> str:
    """Return a share that is 0, not absent, where there is no part yet."""
    return f"({part} or 0 * {whole}) / {whole}"


def _rate(metric: str, *matchers: str) -> str:
    return rate(metric, *matchers, by=_BY)


def _count(metric: str, *matchers: str) -> str:
    return f"{rate_over(metric, _RANGE, *matchers, by=_BY, scope=SCOPE)} * $__range_s"


def _score(part: str, whole: str) -> str:
    """Return the z-score of a variant's share against that of its profile's other variants together."""
    part = f"({part} or 0 * {whole})"
    all_parts, all_whole = f"sum by (profile) ({part})", f"sum by (profile) ({whole})"
    rest_part = f"({all_parts} - on (profile) group_right () {part})"
    rest_whole = f"({all_whole} - on (profile) group_right () ({whole}))"
    pooled = f"({all_parts} / {all_whole})"
    spread = f"({pooled} * (1 - {pooled}) * on (profile) group_right () (1 / ({whole}) + 1 / {rest_whole}))"
    return f"({part} / ({whole}) - {rest_part} / {rest_whole}) / sqrt{spread}"


def _latency(title: str, description: str, histogram: str, *matchers: str) -> Panel:
    return Panel(
        title,
        description,
        "ms",
        tuple(
            (quantile(share, histogram, *_ROUTED, *matchers, by=_BY), f"{_NAME} {legend}")
            for share, legend in ((0.5, "p50"), (0.95, "p95"))
        ),
    )


_SPREAD = Row(
    "Who gets what",
    (
        Panel(
            "Requests by variant",
            "Of profiles that are routed; `settings.routing` has the weights.",
            "reqps",
            ((rate("ray_baton_requests_total", ANSWERING, *_ROUTED, by=_BY), _NAME),),
        ),
        Panel(
            "How the variant was chosen",
            "By weight, by a rule, by its name, or for a copy in the shadow.",
            "reqps",
            ((rate(_OUTCOMES, VARIANT, by=(*_BY, "way")), f"{_NAME} by {{{{way}}}}"),),
        ),
        Panel(
            "How answers ended",
            "`filtered`: the guardrail ended the answer; `dropped`: there was no room for a copy in the shadow.",
            "reqps",
            ((rate(_OUTCOMES, VARIANT, by=(*_BY, "way", "outcome")), f"{_NAME} {{{{way}}}} {{{{outcome}}}}"),),
        ),
    ),
)
_SIDE_BY_SIDE = Row(
    "Side by side",
    (
        Panel(
            "Share of errors",
            "Failed, late or shed, of the requests that count for availability.",
            "percentunit",
            (
                (
                    _share(
                        _rate("ray_baton_requests_total", ANSWERING, HURT, *_ROUTED),
                        _rate("ray_baton_requests_total", ANSWERING, COUNTED, *_ROUTED),
                    ),
                    _NAME,
                ),
            ),
        ),
        Panel(
            "Share blocked or filtered",
            "The guardrail refused the question or ended the answer.",
            "percentunit",
            ((_share(_rate(_OUTCOMES, 'outcome=~"blocked|filtered"', *_REAL), _rate(_OUTCOMES, *_REAL)), _NAME),),
        ),
        Panel(
            "Share grounded",
            "Answers that their passages carry to more than one half; `~shadow` are copies that nobody got.",
            "percentunit",
            (
                (
                    "1 - "
                    + _share(
                        _rate(f"{_GROUNDING}_bucket", 'le="0.5"', *_ROUTED), _rate(f"{_GROUNDING}_count", *_ROUTED)
                    ),
                    _NAME,
                ),
            ),
        ),
        _latency(
            "Time to first token",
            "As the gateway sees it; `~shadow` are copies that nobody got.",
            "ray_baton_time_to_first_token_milliseconds",
        ),
        _latency(
            "Whole answer",
            "From the request to the last byte, of those that were answered.",
            "ray_baton_request_milliseconds",
            ANSWERING,
            'outcome="answered"',
        ),
        Panel(
            "Share of usable JSON",
            "Of the answers that were checked against a response format: valid, or valid once repaired.",
            "percentunit",
            (
                (
                    _share(
                        _rate("ray_baton_json_total", 'status=~"valid|repaired"', *_ROUTED),
                        _rate("ray_baton_json_total", *_ROUTED),
                    ),
                    _NAME,
                ),
            ),
        ),
    ),
)
_HINT = (
    "z-score against the profile's other variants, over the time that the board shows: beyond 2 or -2 a difference is "
    "hardly chance. "
)
_SIGNIFICANCE = Row(
    "Is the difference real",
    (
        Panel(
            "Errors against the others",
            _HINT + "Above 0: more errors.",
            "none",
            (
                (
                    _score(
                        _count("ray_baton_requests_total", ANSWERING, HURT, *_ROUTED),
                        _count("ray_baton_requests_total", ANSWERING, COUNTED, *_ROUTED),
                    ),
                    _NAME,
                ),
            ),
            "stat",
        ),
        Panel(
            "Blocked or filtered against the others",
            _HINT + "Above 0: more of them.",
            "none",
            ((_score(_count(_OUTCOMES, 'outcome=~"blocked|filtered"', *_REAL), _count(_OUTCOMES, *_REAL)), _NAME),),
            "stat",
        ),
        Panel(
            "Ungrounded against the others",
            _HINT + "Above 0: fewer answers that their passages carry.",
            "none",
            (
                (
                    _score(
                        _count(f"{_GROUNDING}_bucket", 'le="0.5"', *_ROUTED),
                        _count(f"{_GROUNDING}_count", *_ROUTED),
                    ),
                    _NAME,
                ),
            ),
            "stat",
        ),
    ),
)

BOARD = Board(
    "baton-routing",
    "Baton / Routing",
    "Which variant is better, and whether that is more than chance.",
    # Variants differ in what they ask of these two.
    (_SPREAD, _SIDE_BY_SIDE, _SIGNIFICANCE, serve.row('deployment=~"gateway|generator"')),
)
