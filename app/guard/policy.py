"""One policy, compiled: what applies in each direction, and the judgement of one text by it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from app.guard import solo
from app.guard.classifier import Classifier
from app.guard.folding import BLANK_SIGN
from app.guard.normalise import BASE_CONTEXT, Skeleton, skeleton, unfinished
from app.guard.patterns import Budget, Pattern, RuleFailedError, Utf8, matches
from app.guard.terms import TermIndex
from app.messages import Action, Direction

#: A letter of a run of single letters takes up to this many characters of the skeleton.
_SHARE = solo.SEPARATORS_AT_MOST + 1
#: What ``BLANK_SIGN`` is in the second reading of a text that holds one.
_UNSEEN = "\u200b"


@dataclass(frozen=True)
class Rules:
    """What applies to one direction.

    Patterns by the text they look at: ``original``, ``folded`` (the skeleton), ``single`` (single letters put
    together; ``max_chars`` counts letters). ``classifier_rule`` is its category and action. What follows from the rules
    is worked out once: a stream asks for it with every token.
    """

    terms: TermIndex | None = None
    original: tuple[Pattern, ...] = ()
    folded: tuple[Pattern, ...] = ()
    single: tuple[Pattern, ...] = ()
    classifier: Classifier | None = None
    classifier_rule: tuple[str, Action] = ("classifier", "flag")

    @cached_property
    def looks_at_skeleton(self) -> bool:
        """Whether any rule needs the normalised form."""
        return self.terms is not None or bool(self.folded or self.single)

    @cached_property
    def skeleton_reach(self) -> int:
        """Longest match of a pattern in characters of the skeleton."""
        spaced = max((pattern.max_chars for pattern in self.folded), default=0)
        return max(spaced, max((pattern.max_chars * _SHARE for pattern in self.single), default=0))

    @cached_property
    def original_reach(self) -> int:
        """Longest match of a pattern in characters of the original."""
        return max((pattern.max_chars for pattern in self.original), default=0)

    @cached_property
    def hold_back_chars(self) -> int:
        """Most visible characters that a stream is held back by: the longest term, or match of a pattern."""
        longest = self.terms.longest if self.terms else 0
        return max(longest, self.skeleton_reach, self.original_reach)


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy ready to use."""

    rules: dict[Direction, Rules]
    on_error: Literal["fail_open", "fail_closed"]
    replacement: str


@dataclass(frozen=True, slots=True)
class Window:
    """A text after ``released`` characters that went out before. ``final``: nothing follows. ``bounded``: a stream."""

    text: str
    released: int = 0
    final: bool = True
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class Hit:
    """One match; ``start`` and ``end`` index the window's text."""

    rule: str
    category: str
    action: Action
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known about a window.

    Text before ``safe`` is decided whatever follows; the next window has to begin at ``keep``. ``hits`` begin in the
    decided part (those that block, anywhere); ``covers`` are the spans to redact that reach into it.
    """

    safe: int
    keep: int
    hits: tuple[Hit, ...]
    covers: tuple[tuple[int, int], ...]
    failed: bool


@dataclass(slots=True)
class _Scene:
    """One reading of a window with its forms and what has been found in it so far."""

    rules: Rules
    window: Window
    form: Skeleton
    runs: tuple[solo.Run, ...]
    budget: Budget
    hits: list[Hit] = field(default_factory=list)
    failed: bool = False


def judge(rules: Rules, window: Window, budget: Budget) -> Judgement:
    """Apply every rule but the classifier to one window."""
    text = window.text
    if not window.final and rules.hold_back_chars:
        text = text[: len(text) - min(unfinished(text), len(text) - window.released)]
    first = _read(rules, window, text, budget)
    _collect(first, _original_hits)
    scenes = [first]
    if BLANK_SIGN in text and rules.looks_at_skeleton:
        scenes.append(_read(rules, window, text.replace(BLANK_SIGN, _UNSEEN), budget))
    hits = list(dict.fromkeys(hit for scene in scenes for hit in scene.hits))
    safe = min(map(_safe, scenes))
    decided = [hit for hit in hits if hit.start < safe]
    covers = [(hit.start, hit.end) for hit in decided if hit.action == "redact" and hit.end > window.released]
    return Judgement(
        safe=safe,
        keep=min(_keep(scene, safe, covers) for scene in scenes),
        hits=tuple(hit for hit in hits if _is_news(hit, window, safe)),
        covers=tuple(sorted(covers)),
        failed=any(scene.failed for scene in scenes),
    )


def _read(rules: Rules, window: Window, text: str, budget: Budget) -> _Scene:
    form = Skeleton(text, "", ())
    if rules.looks_at_skeleton:
        form = skeleton(text, bounded=window.bounded, final=window.final)
    scene = _Scene(rules, window, form, tuple(solo.runs(form.text, window.final)), budget)
    for find in (_term_hits, _folded_hits, _single_hits):
        _collect(scene, find)
    return scene


def redact(text: str, start: int, end: int, covers: tuple[tuple[int, int], ...], replacement: str) -> str:
    """Return ``text[start:end]`` with one replacement per stretch of overlapping covers (sorted).

    A stretch that began before ``start`` had its replacement there: what is left of it only vanishes.
    """
    pieces: list[str] = []
    position = start
    reached = -1
    for first, last in covers:
        if first >= reached and first >= start:
            pieces += (text[position:first], replacement)
        position = max(position, min(last, end))
        reached = max(reached, last)
    pieces.append(text[position:end])
    return "".join(pieces)


def _is_news(hit: Hit, window: Window, safe: int) -> bool:
    if hit.start < window.released:
        return hit.action == "block" and hit.end > window.released
    return hit.start < safe or hit.action == "block"


def _collect(scene: _Scene, find: Callable[[_Scene], Iterator[Hit]]) -> None:
    try:
        scene.hits.extend(find(scene))
    except RuleFailedError:
        scene.failed = True


def _term_hits(scene: _Scene) -> Iterator[Hit]:
    if scene.rules.terms is not None:
        for match in scene.rules.terms.matches(scene.form, scene.runs, scene.window.final):
            term = match.term
            yield Hit(term.rule, term.category, term.action, match.start, match.end)


def _original_hits(scene: _Scene) -> Iterator[Hit]:
    if scene.rules.original:
        raw = scene.form.raw
        text = Utf8(raw)
        for pattern in scene.rules.original:
            resolved = len(raw) if scene.window.final else len(raw) - pattern.max_chars
            for start, end in matches(pattern, text, resolved, scene.budget):
                yield Hit(pattern.rule, pattern.category, pattern.action, start, end)


def _folded_hits(scene: _Scene) -> Iterator[Hit]:
    if scene.rules.folded:
        form = scene.form
        text = Utf8(form.text)
        for pattern in scene.rules.folded:
            resolved = len(form.text) if scene.window.final else len(form.text) - pattern.max_chars
            for start, end in matches(pattern, text, resolved, scene.budget):
                yield Hit(pattern.rule, pattern.category, pattern.action, *form.span(start, end))


def _single_hits(scene: _Scene) -> Iterator[Hit]:
    form = scene.form
    if not scene.rules.single or not (scene.runs or form.hidden):
        return
    joined = form.edited(solo.joined(scene.runs))
    text = Utf8(joined.text)
    for pattern in scene.rules.single:
        resolved = len(joined.text)
        if not scene.window.final:
            last = max(0, len(form.text) - pattern.max_chars * _SHARE)
            until = form.start(last) if form.text else 0
            resolved = bisect_left(range(resolved), until, key=joined.start)
        for start, end in matches(pattern, text, resolved, scene.budget):
            span = joined.span(start, end)
            if _holds_run(scene, *span) or any(map(joined.hides_before, range(start + 1, end))):
                yield Hit(pattern.rule, pattern.category, pattern.action, *span)


def _holds_run(scene: _Scene, start: int, end: int) -> bool:
    """Return whether the original's ``start:end`` shares a letter with a run of single letters."""
    at = bisect_left(scene.runs, end, key=lambda run: scene.form.start(run.positions[0])) - 1
    return at >= 0 and scene.form.start(scene.runs[at].positions[-1]) >= start


def _safe(scene: _Scene) -> int:
    """Return where the part of the window begins that text to come may still decide."""
    rules, window, form = scene.rules, scene.window, scene.form
    if window.final:
        return len(form.raw)
    holds = [len(form.raw), len(form.raw) - rules.original_reach]
    if rules.skeleton_reach and form.text:
        holds.append(form.start(max(0, len(form.text) - rules.skeleton_reach)))
    pending = rules.terms.pending(form, window.released) if rules.terms else None
    if pending is not None:
        holds.append(pending)
    return max(window.released, min(holds))


def _keep(scene: _Scene, safe: int, covers: list[tuple[int, int]]) -> int:
    """Return where the context of the next window has to begin for the same matches to be seen again."""
    if scene.window.final:
        return safe
    starts = [safe, safe - scene.rules.original_reach, *(start for start, end in covers if end > safe)]
    form = scene.form
    if scene.rules.skeleton_reach and form.text:
        index = bisect_left(range(len(form.text)), safe, key=form.start)
        starts.append(form.start(max(0, index - scene.rules.skeleton_reach)))
    return max(0, min(starts) - BASE_CONTEXT)
