"""The service level objectives: one table, from which recording rules and burn-rate alerts follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dashboards.promql import ANSWERING, AWAITED, COUNTED, GIVEN, HURT, WORKING, grown

Severity = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective. ``errors`` and ``requests`` are numbers within ``{window}``, which is to be filled in.

    ``look`` and ``do`` are lines of the runbook. ``fast`` is the severity of a fast burn; a slow one is always a
    warning.
    """

    name: str
    title: str
    objective: float
    errors: str
    requests: str
    promise: str
    look: tuple[str, ...]
    do: tuple[str, ...]
    fast: Severity = "critical"


@dataclass(frozen=True, slots=True)
class Burn:
    """Both windows have to burn the budget ``factor`` times as fast as the objective allows."""

    short: str
    long: str
    factor: float


#: 2 % of a month's budget in an hour, 5 % in six; then 10 % in a day and in three.
FAST = (Burn("5m", "1h", 14.4), Burn("30m", "6h", 6))
SLOW = (Burn("2h", "1d", 3), Burn("6h", "3d", 1))
#: Bad requests that a long window has to hold: one failed question in a quiet night wakes nobody.
FEWEST = 5
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")


def _slower(histogram: str, bound: str, *matchers: str) -> tuple[str, str]:
    every = grown(f"{histogram}_count", "{window}", *matchers)
    within = grown(f"{histogram}_bucket", "{window}", *matchers, f'le="{bound}"')
    return f"{every} - {within}", every


def _availability() -> Slo:
    requests = "ray_baton_requests_total"
    hurt = grown(requests, "{window}", WORKING, AWAITED, HURT)
    counted = grown(requests, "{window}", WORKING, AWAITED, COUNTED)
    return Slo(
        "availability",
        "Availability",
        0.995,
        # `or`: where nothing ever failed there is no series to subtract.
        f"({hurt} or 0 * {counted})",
        counted,
        "99.5 % of the questions that the guardrail, the caller or a mistake of his did not end are answered: they "
        "neither fail, nor run into their deadline, nor are shed. Rows of batches do not count: they are shed by "
        "design and come again.",
        (
            "Overview: requests by outcome. `shed` is too little room, `timeout` a stage that is slow or hangs, "
            "`failed` one that breaks.",
            "The gateway's log names the stage of each fault by request id.",
        ),
        (
            "`shed`: as in [BatonShedding](#batonshedding).",
            "`timeout`: as in [BatonLatencySpike](#batonlatencyspike).",
            "`failed`: the log of the stage that the gateway's log names; a store or an engine that is gone.",
            "Undo the last change of values or of the model, if the burning began with it.",
        ),
    )


def _first_token() -> Slo:
    slow = _slower("ray_baton_time_to_first_token_milliseconds", "2000.0", GIVEN, AWAITED)
    return Slo(
        "time-to-first-token",
        "TimeToFirstToken",
        0.95,
        *slow,
        "95 % of the answers that no batch asked for begin within two seconds.",
        (
            "Pipeline board: whether requests wait in line, or which stage before the generator is slow.",
            "Engine board: waiting requests, and time to the first token inside of the engine.",
        ),
        (
            "They wait in line: raise `max_replicas` of the generator, or give other classes less `weight`.",
            "The engine is slow to begin: shorter prompts (`topK`, `contextTokens`), prefix caching.",
            "Retriever or guardrail: raise its replicas.",
        ),
    )


def _end_to_end() -> Slo:
    slow = _slower("ray_baton_request_milliseconds", "30000.0", ANSWERING, AWAITED, 'outcome="answered"')
    return Slo(
        "end-to-end",
        "EndToEnd",
        0.95,
        *slow,
        "95 % of the answers that no batch asked for are complete within 30 seconds.",
        (
            "Engine board: time between tokens, running requests, tokens generated.",
            "Overview: whether time to the first token went up as well; then that is the cause.",
        ),
        (
            "Answers grew long: let `maxTokens` of `settings.limits` or of the profile be smaller.",
            "Tokens come slowly: fewer requests at once per engine (`max_num_seqs`), more replicas.",
        ),
    )


def _grounded() -> Slo:
    grounding = "ray_baton_grounding"
    return Slo(
        "grounded-answers",
        "GroundedAnswers",
        0.9,
        grown(f"{grounding}_bucket", "{window}", 'le="0.5"', GIVEN),
        grown(f"{grounding}_count", "{window}", GIVEN),
        "90 % of the answers with passages are carried by them to more than one half.",
        (
            "Pipeline board, row retriever: empty retrievals, score of the best passage, size of the index.",
            "Routing board: whether it is one variant's answers.",
        ),
        (
            "Passages are missing or poor: index what is asked for; look at `topK` and `minScore`.",
            "Passages are good and answers leave them: undo the change of the model or of the system prompt.",
        ),
        "warning",
    )


SLOS = (_availability(), _first_token(), _end_to_end(), _grounded())


def ratio(slo: Slo, window: str) -> str:
    """Return the name of the recorded share of bad requests, with its selector."""
    return f'baton_slo:error_ratio:rate{window}{{namespace="baton",job="baton-metrics",slo="{slo.name}"}}'


def errors(slo: Slo, window: str) -> str:
    """Return the name of the recorded number of bad requests, with its selector."""
    return f'baton_slo:errors:increase{window}{{namespace="baton",job="baton-metrics",slo="{slo.name}"}}'


def burns(slo: Slo, pairs: tuple[Burn, ...]) -> str:
    """Return the expression that is true while a pair of windows burns too fast, over more than a few bad requests."""
    return "\nor\n".join(
        f"({ratio(slo, pair.long)} > {limit:.6g} and {ratio(slo, pair.short)} > {limit:.6g}\n"
        f" and {errors(slo, pair.long)} >= {FEWEST})"
        for pair in pairs
        for limit in (pair.factor * (1 - slo.objective),)
    )
