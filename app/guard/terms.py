"""Thousands of terms in one pass (Aho-Corasick), with word borders, scripts and the hold-back of a stream."""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.guard import solo
from app.guard.folding import NO_WORD, is_glued, is_unspaced, script, word_classes
from app.guard.normalise import Skeleton, neighbour_script, skeleton
from app.messages import Action

_SOLO_AT_LEAST = 3
_SOLO_ANYWHERE = 4
"""A shorter term in single letters counts only when the run holds nothing else ("a s s", not "c l a s s")."""
_CHANCE_BELOW = 6
"""A shorter word may equal a term of another script by chance (Russian "рот", English "pot")."""
#: Scripts that people write prose in beside English (UAX 31, table 5, less those without words of look-alikes). Letters
#: of any other (Coptic, Lisu, Cherokee) in the place of Latin ones are no chance.
_PROSE_SCRIPTS = {
    *("ARABIC", "ARMENIAN", "BENGALI", "CYRILLIC", "DEVANAGARI", "ETHIOPIC", "GEORGIAN", "GREEK"),
    *("GUJARATI", "GURMUKHI", "HEBREW", "KANNADA", "KHMER", "LAO", "LATIN", "MALAYALAM", "MYANMAR", "ORIYA"),
    *("SINHALA", "TAMIL", "TELUGU", "THAANA", "THAI", "TIBETAN"),
}


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a policy. ``whole_word`` asks for word borders where the script has them."""

    text: str
    category: str
    action: Action
    rule: str
    whole_word: bool = True


@dataclass(frozen=True, slots=True)
class Match:
    """A resolved match: ``start`` and ``end`` index the original text."""

    term: Term
    start: int
    end: int


class _Prefixes:
    """Tells whether a text begins any of many strings, in logarithmic time and without a copy of the prefixes."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._sorted = sorted(strings)
        self.longest = max(map(len, strings), default=0)

    def begins(self, text: str) -> bool:
        at = bisect_left(self._sorted, text)
        return at < len(self._sorted) and self._sorted[at].startswith(text)


class TermIndex:
    """Immutable once built, so any number of threads may search it."""

    def __init__(self, terms: Sequence[Term]) -> None:
        """Build the automaton. Raises ValueError naming a term of which nothing is left after normalisation."""
        from daachorse import CharwiseDoubleArrayAhoCorasick

        self._terms = tuple(terms)
        plain: dict[str, list[int]] = {}
        single: dict[str, list[int]] = {}
        for index, term in enumerate(self._terms):
            for form in _forms(term.text):
                plain.setdefault(form, []).append(index)
                letters = solo.squeeze(form)
                if letters is not None and len(letters) >= _SOLO_AT_LEAST:
                    single.setdefault(letters, []).append(index)
        self._has_gaps = any(" " in form for form in plain)
        patterns = list(plain.keys() | single.keys())
        self._plain = [tuple(plain.get(pattern, ())) for pattern in patterns]
        self._single = [tuple(single.get(pattern, ())) for pattern in patterns]
        self._automaton: Any = CharwiseDoubleArrayAhoCorasick(patterns)
        self._at_borders = _Prefixes([form for form, ids in plain.items() if any(map(self._is_whole, ids))])
        self._anywhere = _Prefixes([form for form, ids in plain.items() if not all(map(self._is_whole, ids))])
        self._single_long = _Prefixes([letters for letters in single if len(letters) >= _SOLO_ANYWHERE])
        self._single_short = _Prefixes([letters for letters in single if len(letters) < _SOLO_ANYWHERE])

    @property
    def longest(self) -> int:
        """Length of the longest term in characters of its normalised form."""
        return max(self._at_borders.longest, self._anywhere.longest)

    def matches(self, form: Skeleton, runs: Iterable[solo.Run], final: bool) -> set[Match]:
        """Return every match that text to come cannot undo; ``runs`` are the skeleton's runs of single letters."""
        found = set(self._plain_matches(form, final))
        if (parted := self._parted(form, final)) is not None:
            found.update(self._plain_matches(parted, final))
        for run in runs:
            found.update(self._single_matches(form, run, final))
        return {match for match in found if not _is_chance(match, form)}

    def pending(self, form: Skeleton, released: int) -> int | None:
        """Return where (index of the original, from ``released`` on) a match may begin that text to come completes."""
        starts = list(self._pending_plain(form, released))
        if (parted := self._parted(form, final=False)) is not None:
            starts += self._pending_plain(parted, released)
        starts += self._pending_single(form, released)
        return min(starts, default=None)

    def _parted(self, form: Skeleton, final: bool) -> Skeleton | None:
        """Return the form in which signs between words are blanks; None where it would tell nothing new."""
        parted = form.edited(solo.parted(form.text, final)) if self._has_gaps else form
        return None if parted is form else parted

    def _is_whole(self, index: int) -> bool:
        return self._terms[index].whole_word

    def _plain_matches(self, form: Skeleton, final: bool) -> Iterator[Match]:
        hits = self._automaton.find_overlapping(form.text)
        if not hits:
            return
        last = len(form.text) if final else len(form.text) - 1
        is_inside = _border_test(form)
        for start, end, pattern in hits:
            if end > last:
                continue
            owners: Sequence[int] = self._plain[pattern]
            if form.hidden and self._single[pattern]:
                owners = [*owners, *self._over_hidden_gaps(form, start, end, pattern)]
            for index in owners:
                term = self._terms[index]
                if not (term.whole_word and is_inside(start, end, term)):
                    yield _match(term, form, start, end)

    def _over_hidden_gaps(self, form: Skeleton, start: int, end: int, pattern: int) -> Iterator[int]:
        """Yield the terms of several words that stand here with something that no reader sees for each blank."""
        for index in self._single[pattern]:
            for spelled in _forms(self._terms[index].text):
                words = spelled.split(" ")
                borders = list(itertools.accumulate(map(len, words), initial=start))[1:-1]
                if borders and "".join(words) == form.text[start:end] and all(map(form.hides_before, borders)):
                    yield index

    def _single_matches(self, form: Skeleton, run: solo.Run, final: bool) -> Iterator[Match]:
        for start, end, pattern in self._automaton.find_overlapping(run.letters):
            is_all = start == 0 and end == len(run.letters) and not run.open
            if not is_all and end - start < _SOLO_ANYWHERE:
                continue
            if not final and run.positions[end - 1] == len(form.text) - 1:
                continue
            for index in self._single[pattern]:
                yield _match(self._terms[index], form, run.positions[start], run.positions[end - 1] + 1)

    def _pending_plain(self, form: Skeleton, released: int) -> Iterator[int]:
        text = form.text
        first = max(0, len(text) - self.longest)
        before = text[first - 1] if first else NO_WORD
        classes = word_classes(before + text[first:])
        for index in range(first, len(text)):
            suffix = text[index:]
            at_border = not is_glued(classes[index - first], classes[index - first + 1])
            is_begun = (at_border and self._at_borders.begins(suffix)) or self._anywhere.begins(suffix)
            if is_begun or (form.hidden and self._has_gaps and self._begins_single(suffix)):
                origin = form.start(index)
                if origin >= released:
                    yield origin
                    return

    def _begins_single(self, suffix: str) -> bool:
        return self._single_long.begins(suffix) or self._single_short.begins(suffix)

    def _pending_single(self, form: Skeleton, released: int) -> Iterator[int]:
        run = solo.tail(form.text, self._single_long.longest + _SOLO_ANYWHERE)
        if not run.letters:
            return
        for index, position in enumerate(run.positions):
            if self._single_long.begins(run.letters[index:]) and form.start(position) >= released:
                yield form.start(position)
                break
        whole = run.letters[:_SOLO_ANYWHERE]
        is_short = len(run.letters) <= _SOLO_ANYWHERE and self._single_short.begins(whole[:_SOLO_AT_LEAST])
        if is_short and form.start(run.positions[0]) >= released:
            yield form.start(run.positions[0])


def spellings(term: str) -> set[str]:
    """Return the spellings under which a term is sought: look-alikes of capitals differ from those of small letters."""
    if term.isascii():
        return {term}
    forms = {term, term.upper(), term.title(), term.capitalize()}
    return forms | {form.replace("ß", "ss") for form in forms}


@functools.lru_cache(maxsize=4096)
def _forms(term: str) -> set[str]:
    if term.isascii() and term.isalnum():  # most of a long list: nothing to fold but the case
        return {term.lower()}
    forms = {skeleton(spelling).text.strip() for spelling in spellings(term)}
    forms.discard("")
    if not forms:
        raise ValueError(term)
    return forms


def _match(term: Term, form: Skeleton, start: int, end: int) -> Match:
    return Match(term, *form.span(start, end))


def _border_test(form: Skeleton) -> Callable[[int, int, Term], bool]:
    """Return a test whether a term at ``text[start:end]`` of a form lies inside a longer word."""
    text, raw = form.text, form.raw

    def is_inside(start: int, end: int, term: Term) -> bool:
        return is_joined(start, term) or is_joined(end, term)

    def is_joined(border: int, term: Term) -> bool:
        around = text[border - 1 : border + 1]
        # The ends of the text and blanks are most borders, and the next test is no cheap one.
        if not 0 < border < len(text) or " " in around:
            return False
        return _is_one_word(around, raw[form.start(border - 1)] + raw[form.start(border)], term)

    def is_inside_ascii(start: int, end: int, _: Term) -> bool:
        return is_glued(classes[start], classes[start + 1]) or is_glued(classes[end], classes[end + 1])

    if not raw.isascii():
        return is_inside
    # Only ASCII is classed as a whole without cost; padded, since the text's own ends are borders.
    classes = f"{NO_WORD}{word_classes(text)}{NO_WORD}"
    return is_inside_ascii


def _is_one_word(folded: str, written: str, term: Term) -> bool:
    """Return whether two neighbours belong to one word, by what they look like and by what was written.

    Where both are letters of the term's own script they are what they are: the Arabic letter that looks like an "o"
    is a letter of its word.
    """
    if is_unspaced(written[0]) or is_unspaced(written[1]):
        return False
    own = {script(char) for char in term.text} - {""}
    native = all(char.isdigit() or script(char) in own for char in written)
    classes = word_classes(written if native else folded)
    return is_glued(classes[0], classes[1])


def _is_chance(match: Match, form: Skeleton) -> bool:
    """Return whether a short word equals a term of another script by chance, told by the script before it."""
    source = form.raw[match.start : match.end]
    if match.end - match.start >= _CHANCE_BELOW or (source.isascii() and match.term.text.isascii()):
        return False
    wanted = {script(char) for char in match.term.text} - {""}
    given = {script(char) for char in source} - {""}
    if not given or not wanted or given & wanted or not given & _PROSE_SCRIPTS:
        return False
    return neighbour_script(form.raw, match.start) not in wanted
