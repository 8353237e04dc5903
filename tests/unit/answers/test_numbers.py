"""Numbers compare by value, however they are spelled."""

import pytest

from app.answers.numbers import find_numbers, unsupported_in, values_in


@pytest.mark.parametrize(
    ("passage", "answer"),
    [
        ("It costs 29.50 euros.", "29.5"),
        ("It costs 29.50 euros.", "29,50 €"),
        ("It costs 29.50 euros.", "2.95e1"),
        ("Es kostet 29,50 Euro.", "29.5"),
        ("It takes 1,024 MB", "1024"),
        ("It takes 1.024 MB", "1024"),
        ("It takes 1024 MB", "1,024"),
        ("It costs 1.024,50 euros", "1,024.5"),
        ("It takes １０２４ MB", "1024"),
        ("It takes 1\u202f024 MB", "1024"),
        ("1,000,000 vectors", "1000000"),
        ("version 2.60.0 at 12:30", "2.60.0 and 12:30"),
        ("It takes 8 cores", "08"),
        ("hot for twelve hours", "12 hours"),
        ("Twenty-five cups and three hundred plates", "25 and 300"),
        ("二十四小时，三百零五元，两万次", "24, 305 and 20000"),
    ],
)
def test_one_number_in_two_spellings_is_supported(passage, answer):
    assert unsupported_in(answer, values_in([passage])) == ([], 0.0)


@pytest.mark.parametrize(
    ("passage", "answer", "invented"),
    [
        ("It costs 29.50 euros.", "It costs 1.25 euros", ["1.25"]),
        ("It costs 29.50 euros.", "29.05", ["29.05"]),
        ("version 2.60.0", "2.60.1", ["2.60.1"]),
        ("8 and 9", "8, 9 or １０", ["１０"]),
        ("no numbers", "7", ["7"]),
        ("One charge lasts twelve hours", "1.00, 1 and 12.00", ["1.00", "1", "12.00"]),
    ],
)
def test_another_number_is_not(passage, answer, invented):
    found, share = unsupported_in(answer, values_in([passage]))
    assert [number.text for number in found] == invented
    assert 0 < share <= 1


def test_places_are_those_of_the_text():
    text = "价格 ２９．５０ 元, or 7"
    assert [text[number.start : number.end] for number in find_numbers(text)] == ["２９．５０", "7"]


def test_a_text_without_numbers_has_nothing_unsupported():
    assert unsupported_in("no numbers", values_in([])) == ([], 0.0)


def test_endless_digits_are_a_number_like_any_other():
    assert unsupported_in("9" * 8000 + "." * 8000 + "1e999", values_in(["1"]))[1] == 1
