"""The numbers of an answer against the numbers of its passages.

Numbers compare by value, whatever their spelling: ``29.50``, ``29.5`` and ``29,50`` are one number, and so are
``1,024`` and ``１０２４``. Where a spelling can be read in two ways (``1.024``), either way counts. What is
no single number, such as the version ``2.60.0`` or the time ``12:30``, compares as it is written. Whole numbers may
also be spelled out in a passage, in English or Chinese; "one" is an article too often to count. Units and signs are
left aside.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

# Every character here stands for one character of the original, so places in the text stay what they are.
_NUMBER = re.compile(r"\d+(?:[.,:]\d+|[\u00a0\u202f\u2009]\d{3}(?!\d))*(?:[eE][+-]?\d{1,3}(?!\w))?")
_SPACES = re.compile(r"[\u00a0\u202f\u2009]")
_GROUPS = re.compile(r"\d{1,3}(?:,\d{3})+")

_BELOW_TWENTY = re.findall(
    r"\w+",
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
)
_TENS = re.findall(r"\w+", "twenty thirty forty fifty sixty seventy eighty ninety")
_ENGLISH = {word: value for value, word in enumerate(_BELOW_TWENTY)} | {
    word: 10 * place for place, word in enumerate(_TENS, 2)
}
_ENGLISH_NUMBER = re.compile(
    rf"\b(?:(?P<tens>{'|'.join(_TENS)})(?:[- ](?P<ones>{'|'.join(_BELOW_TWENTY[1:10])}))?"
    rf"|(?P<one>{'|'.join(_BELOW_TWENTY)}))(?: (?P<unit>hundred|thousand|million))?\b",
    re.IGNORECASE,
)
_ENGLISH_UNITS = {None: 1, "hundred": 100, "thousand": 1000, "million": 1_000_000}
_CHINESE_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"两": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
_LONGEST_WHOLE = 12
_CHINESE_NUMBER = re.compile("[零一二两三四五六七八九十百千万]+")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number that is written without a fraction, or spelled out."""

    value: int


Reading = Decimal | str | Whole


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a text: characters ``start`` to ``end``, and the values that its spelling may stand for."""

    text: str
    start: int
    end: int
    readings: frozenset[Reading]


def find_numbers(text: str) -> Iterator[Number]:
    """Yield the numbers that are written in digits, in order."""
    plain = "".join(map(_plain, text))
    for found in _NUMBER.finditer(plain):
        yield Number(text[found.start() : found.end()], found.start(), found.end(), _readings(found.group()))


def values_in(texts: Iterable[str]) -> frozenset[Reading]:
    """Return all values that the numbers in texts may stand for, written in digits or spelled out."""
    values: set[Reading] = set()
    for text in texts:
        values.update(reading for number in find_numbers(text) for reading in number.readings)
        values.update(_spelled_out(text))
    return frozenset(values)


def unsupported_in(text: str, known: frozenset[Reading]) -> tuple[list[Number], float]:
    """Return the numbers of a text that are not among ``known``, and their share of its numbers (0 without any)."""
    numbers = list(find_numbers(text))
    unsupported = [number for number in numbers if not number.readings & known]
    return unsupported, len(unsupported) / len(numbers) if numbers else 0.0


def _plain(character: str) -> str:
    """Return the character in its plain form where that is one digit or mark; a full-width ``８`` is ``8``."""
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    plain = unicodedata.normalize("NFKC", character)
    return plain if plain in ".,:" else character


def _readings(spelling: str) -> frozenset[Reading]:
    spelling = _SPACES.sub("", spelling)
    commas, points = spelling.count(","), spelling.count(".")
    readings = {spelling} if ":" in spelling else {spelling.replace(",", "."), *_grouped(spelling)}
    if commas and points:
        readings = set(_grouped(spelling)) or {spelling}
    values: set[Reading] = {_value(reading) for reading in readings}
    if spelling.isdigit() and len(spelling) <= _LONGEST_WHOLE:
        values.add(Whole(int(spelling)))
    return frozenset(values)


def _grouped(spelling: str) -> Iterator[str]:
    """Yield the spelling without the marks between groups of three digits, read the English and the European way."""
    for text in (spelling, spelling.translate(str.maketrans(".,", ",."))):
        whole, point, fraction = text.partition(".")
        if _GROUPS.fullmatch(whole) and "," not in fraction and "." not in fraction:
            yield whole.replace(",", "") + point + fraction


def _value(spelling: str) -> Decimal | str:
    try:
        return Decimal(spelling)
    except InvalidOperation:
        return spelling


def _spelled_out(text: str) -> Iterator[Whole]:
    for found in _ENGLISH_NUMBER.finditer(text):
        words = [word.lower() for word in (found["tens"], found["ones"], found["one"]) if word]
        unit = found["unit"].lower() if found["unit"] else None
        value = sum(_ENGLISH[word] for word in words) * _ENGLISH_UNITS[unit]
        if value != 1:
            yield Whole(value)
    for found in _CHINESE_NUMBER.finditer(text):
        if (value := _chinese(found.group())) != 1:
            yield Whole(value)


def _chinese(spelling: str) -> int:
    """Return the value of ``二十四`` (24), ``三百零五`` (305) or ``两万`` (20000)."""
    total = section = digit = 0
    for character in spelling:
        if character == "万":
            total, section, digit = (total + section + digit or 1) * 10_000, 0, 0
        elif unit := _CHINESE_UNITS.get(character):
            section, digit = section + (digit or 1) * unit, 0
        else:
            digit = _CHINESE_DIGITS[character]
    return total + section + digit
