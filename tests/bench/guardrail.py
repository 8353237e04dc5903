"""Item 6: what the guardrail costs per KB as its terms grow, against regular expressions and a naive loop.

All figures are thread CPU time. The rivals look for the same terms in the same texts, but do less: see the notes.
"""

from __future__ import annotations

import random
import re
import string
import time
from collections.abc import Callable, Sequence
from typing import Any

import re2

from app.config.guardrail import GuardrailConfig
from app.messages import JudgeRequest
from app.stages.guardrail import Guardrail
from tests.bench.measure import Result, percentiles, ratio

#: Wide: a shared CI machine. The regular expression is the rival most people would write.
BOUNDS: dict[str, tuple[float, float]] = {
    "regex_over_guardrail_10k": (15, 1500),
    "re2_unseen_over_guardrail_10k": (5, 1500),
    "loop_over_guardrail_10k": (6, 500),
    "guardrail_100k_over_10k": (0.3, 5),
    "guardrail_p99_ms": (0.02, 8),
}
BUDGET_MILLISECONDS = 1.0
TEXT_BYTES = 2048
SIZES = (1_000, 10_000, 100_000)
#: Texts of each kind that a slow rival reads: at 100,000 terms `re` takes two seconds for one, so there it reads half.
SLOW_TEXTS = {1_000: 20, 10_000: 10, 100_000: 1}
FAST_TEXTS = 40
SYLLABLES = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]

GUARDRAIL, AUTOMATON = "Baton's guardrail", "its automaton alone"
REGEX, LOOP = "re, alternation", "naive loop"
RE2_UNSEEN, RE2_SEEN = "RE2, unseen text", "RE2, same text again"
CONTESTANTS = (GUARDRAIL, AUTOMATON, REGEX, RE2_UNSEEN, RE2_SEEN, LOOP)
SLOW = (REGEX, RE2_UNSEEN, LOOP)

Search = Callable[[str], Any]
#: Microseconds per KB, one value a text, by contestant.
Costs = dict[str, list[float]]


def run(quick: bool) -> Result:
    result = Result("guardrail", "Guardrail: cost per KB as the terms grow")
    rng = random.Random(7)
    terms = make_terms(rng, SIZES[-1])
    texts = {kind.__name__: [cut(kind(rng)) for _ in range(200)] for kind in (english, chinese, mixed)}
    stages = {count: build_guardrail(terms[:count]) for count in (SIZES[1:] if quick else SIZES)}
    built, largest = stages[SIZES[-1]]
    costs = {}
    for count in SIZES[1:2] if quick else SIZES:
        costs[count] = compare(terms[:count], stages[count][1], texts, 4 if quick else SLOW_TEXTS[count])
    calls = 2_000 if quick else 10_000
    spent = {
        kind: judge_often(largest, [*texts[kind], *planted(rng, texts[kind], terms)], calls // 3) for kind in texts
    }
    if not quick:
        show_costs(result, costs)
        result.notes += notes(built, costs)
    show_budget(result, spent, calls)
    find_ratios(result, costs, spent)
    return result


# --- terms and texts ------------------------------------------------------------------------------------------------


def word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.randint(2, 4)))


def make_terms(rng: random.Random, count: int) -> list[str]:
    """Return different terms in no order: three in ten of 3 to 5 Chinese characters, the others of 1 to 3 words."""
    terms: dict[str, None] = {}
    while len(terms) < count:
        if rng.random() < 0.3:
            terms["".join(rng.choices(HAN, k=rng.randint(3, 5)))] = None
        else:
            terms[" ".join(word(rng) + rng.choice(string.ascii_lowercase) for _ in range(rng.randint(1, 3)))] = None
    return list(terms)


def english(rng: random.Random) -> str:
    return " ".join(word(rng) + rng.choice(["", "", "", ",", "."]) for _ in range(500))


def chinese(rng: random.Random) -> str:
    return "".join(rng.choice(HAN) if rng.random() < 0.9 else rng.choice("，。 ") for _ in range(1000))


def mixed(rng: random.Random) -> str:
    words = (word(rng) if rng.random() < 0.7 else "".join(rng.choices(HAN, k=3)) for _ in range(600))
    return " ".join(words)


def cut(text: str) -> str:
    return text.encode()[:TEXT_BYTES].decode(errors="ignore")


def planted(rng: random.Random, texts: Sequence[str], terms: Sequence[str]) -> list[str]:
    """Return some of the texts with a term at the end."""
    return [f"{text[:-40]} {rng.choice(terms)}" for text in texts[:20]]


# --- contestants ----------------------------------------------------------------------------------------------------


def build_guardrail(terms: Sequence[str]) -> tuple[float, Guardrail]:
    """Return the seconds that the build took, and the stage: these terms and the built-in rules."""
    start = time.perf_counter()
    stage = Guardrail(
        GuardrailConfig.parse({"policies": {"default": {"terms": [{"terms": list(terms)}]}}}, "guardrail")
    )
    stage.start()
    return time.perf_counter() - start, stage


def contestants(terms: Sequence[str], stage: Guardrail) -> dict[str, Search]:
    """Return the searches. All fold capitals; the regular expressions ask for word borders around Latin terms.

    The borders are kind to the rivals: without them each alternative is tried at every letter, not at every word.
    """
    from daachorse import CharwiseDoubleArrayAhoCorasick

    latin = "|".join(re.escape(term) for term in terms if term.isascii())
    source = rf"\b(?:{latin})\b|" + "|".join(term for term in terms if not term.isascii())
    regex, linear = re.compile(source), re2.compile(source.replace("\\ ", " "), _roomy())
    automaton = CharwiseDoubleArrayAhoCorasick(list(terms))
    return {
        GUARDRAIL: lambda text: stage.run(JudgeRequest("input", (text,))).findings,
        AUTOMATON: lambda text: automaton.find_overlapping(text.lower()),
        REGEX: lambda text: [found.span() for found in regex.finditer(text.lower())],
        RE2_UNSEEN: lambda text: [found.span() for found in linear.finditer(text.lower())],
        LOOP: lambda text: loop(terms, text.lower()),
    }


def loop(terms: Sequence[str], text: str) -> list[str]:
    return [term for term in terms if term in text]


def _roomy() -> Any:
    """Return options that give RE2 room for its automaton: under its default of 8 MB, 100,000 terms do not compile."""
    options = re2.Options()
    options.max_mem = 3 << 30
    options.never_capture = True
    return options


# --- measuring ------------------------------------------------------------------------------------------------------


def compare(terms: Sequence[str], stage: Guardrail, texts: dict[str, list[str]], few: int) -> dict[str, Costs]:
    """Return each contestant's cost per kind of text, after a check that each finds a term where there is one."""
    searches = contestants(terms, stage)
    for name, search in searches.items():
        for term in (terms[0], next(term for term in terms if not term.isascii())):
            if not search(f"Before {term}, after"):
                raise RuntimeError(f"{name} does not find a term")
    return {kind: read_in_turn(searches, found, few) for kind, found in texts.items()}


def read_in_turn(searches: dict[str, Search], texts: Sequence[str], few: int) -> Costs:
    """Let the contestants read the same texts in two rounds, in an order drawn anew; RE2 reads each round's twice.

    RE2 builds its automaton from the text it meets, so it is warmed up with as many other texts as it then reads, and
    a text it has met costs far less than a new one: both are kept. Thousands of calls would only ever show the latter.
    """
    costs: Costs = {name: [] for name in CONTESTANTS}
    drawn, order = random.Random(7), list(searches)
    slow_texts = texts if few > 1 else [text[: len(text) // 2] for text in texts]
    for name in (GUARDRAIL, AUTOMATON, RE2_UNSEEN):
        read(searches[name], slow_texts[-few:] if name in SLOW else texts[-FAST_TEXTS:])
    half = max(1, few // 2)
    for number in range(min(2, few)):
        drawn.shuffle(order)
        for name in order:
            size = half if name in SLOW else FAST_TEXTS // 2
            part = (slow_texts if name in SLOW else texts)[number * size :][:size]
            costs[name] += read(searches[name], part)
            if name == RE2_UNSEEN:
                costs[RE2_SEEN] += read(searches[name], part)
    return costs


def read(search: Search, texts: Sequence[str]) -> list[float]:
    """Return microseconds of thread CPU time per KB for each text."""
    costs = []
    for text in texts:
        start = time.thread_time()
        search(text)
        costs.append((time.thread_time() - start) * 1e6 / (len(text.encode()) / 1024))
    return costs


def judge_often(stage: Guardrail, texts: Sequence[str], calls: int) -> list[float]:
    """Return seconds of thread CPU time of each call, over texts of 2 KB in turn."""
    requests = [JudgeRequest("input", (text,)) for text in texts]
    for request in requests:
        stage.run(request)
    spent = []
    for call in range(calls):
        start = time.thread_time()
        stage.run(requests[call % len(requests)])
        spent.append(time.thread_time() - start)
    return spent


# --- the report -----------------------------------------------------------------------------------------------------


def pooled(costs: dict[str, Costs], name: str) -> list[float]:
    """Return a contestant's values over all kinds of text."""
    return [value for kind in costs.values() for value in kind[name]]


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def show_costs(result: Result, costs: dict[int, dict[str, Costs]]) -> None:
    rows = []
    for count, found in costs.items():
        for name in CONTESTANTS:
            kinds = [round(median(found[kind][name]), 1) for kind in found]
            slower = "1" if name == GUARDRAIL else str(ratio(pooled(found, name), pooled(found, GUARDRAIL)))
            rows.append([count, name, *kinds, slower])
    columns = ["terms", "contestant", "English (µs/KB)", "Chinese (µs/KB)", "mixed (µs/KB)", "to the guardrail"]
    result.table("Thread CPU time per KB of text, median over texts of 2 KB", columns, rows)
    series = {name: [median(pooled(found, name)) for found in costs.values()] for name in CONTESTANTS}
    axes = {"xlabel": "terms", "ylabel": "µs of thread CPU time per KB", "log": "xy"}
    result.plot("Guardrail: cost per KB over the number of terms", "line", list(costs), series, **axes)


def show_budget(result: Result, spent: dict[str, list[float]], calls: int) -> None:
    found = {kind: percentiles(values) for kind, values in spent.items()}
    rows = [[kind, *(round(each[key], 3) for key in ("p50", "p99", "p999"))] for kind, each in found.items()]
    columns = ["text", "p50 (ms)", "p99 (ms)", "p99.9 (ms)"]
    result.table(
        f"Guardrail, 100,000 terms and the built-in rules, 2 KB: thread CPU time of {calls:,} calls", columns, rows
    )
    worst = max(found, key=lambda kind: found[kind]["p99"])
    result.claim(
        "Guardrail with 100,000 terms, 2 KB of text: p99 of the thread CPU time",
        f"at most {BUDGET_MILLISECONDS:g} ms",
        f"{found[worst]['p99']:.2f} ms ({worst} text, the slowest of three kinds; p50 {found[worst]['p50']:.2f} ms)",
        found[worst]["p99"] <= BUDGET_MILLISECONDS,
        reason="" if found[worst]["p99"] <= BUDGET_MILLISECONDS else _floor(found, worst),
    )


def _floor(found: dict[str, dict[str, float]], worst: str) -> str:
    return f"the floor is the p50 of the same calls, {found[worst]['p50']:.2f} ms; the machine's other load is above it"


def find_ratios(result: Result, costs: dict[int, dict[str, Costs]], spent: dict[str, list[float]]) -> None:
    """Add the ratios: rivals to the guardrail per number of terms, growth with the terms, and the p99."""
    names = {REGEX: "regex", RE2_UNSEEN: "re2_unseen", RE2_SEEN: "re2_seen", LOOP: "loop", AUTOMATON: "automaton"}
    for count, found in costs.items():
        own = pooled(found, GUARDRAIL)
        for name, short in names.items():
            result.ratios[f"{short}_over_guardrail_{count // 1000}k"] = ratio(pooled(found, name), own).value
    largest = [seconds * 1e6 / (TEXT_BYTES / 1024) for values in spent.values() for seconds in values]
    result.ratios["guardrail_100k_over_10k"] = median(largest) / median(pooled(costs[SIZES[1]], GUARDRAIL))
    result.ratios["guardrail_p99_ms"] = max(percentiles(values)["p99"] for values in spent.values())


def notes(built: float, costs: dict[int, dict[str, Costs]]) -> list[str]:
    shares = [100 * median(pooled(found, AUTOMATON)) / median(pooled(found, GUARDRAIL)) for found in costs.values()]
    return [
        "Only the guardrail folds look-alikes, width, hidden characters and other disguises, reads letters that stand"
        " apart, keeps word borders in every script, reports overlapping terms, and runs the built-in rules against"
        " injection and control tokens. The rivals only lower the text; the regular expressions ask for ASCII word"
        " borders and report the leftmost of overlapping terms; the loop and the automaton alone ask for no borders.",
        "RE2 builds its automaton lazily from the texts it meets: a text it has read before is cheaper than the"
        " guardrail up to 10,000 terms, a new one dearer by far from there on. It was given 3 GB; with its"
        " default of 8 MB it refuses 100,000 terms.",
        "Terms and texts are random syllables and Chinese characters; real text repeats itself more, which is kinder"
        " to RE2 than what is shown as unseen.",
        f"The automaton is {shares[0]:.0f} % of the guardrail's cost at 1,000 terms and {shares[-1]:.0f} % at"
        " 100,000; the rest is normalisation, borders and the built-in rules.",
        f"Building the guardrail with 100,000 terms took {built:.1f} s, once and off the event loop.",
    ]
