from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from app.answers.sentences import split_sentences, split_values


def texts(answer):
    return [answer[sentence.start : sentence.end] for sentence in split_sentences(answer, 99)]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use version 2.60.0 of ray. It costs 3.5 euros.", ["Use version 2.60.0 of ray.", "It costs 3.5 euros."]),
        ("Edit values.yaml now. Then wait.", ["Edit values.yaml now.", "Then wait."]),
        ("Tools, e.g. Helm, help. See Fig. 3 of Dr. Li.", ["Tools, e.g. Helm, help.", "See Fig. 3 of Dr. Li."]),
        ("J. Smith agreed. So did I. Good.", ["J. Smith agreed.", "So did I.", "Good."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("It is so [1]. Here too. [2][3] And on.", ["It is so [1].", "Here too. [2][3]", "And on."]),
        ("头节点需要 8 GB。“够吗？”够了！好；行", ["头节点需要 8 GB。", "“够吗？”", "够了！", "好；", "行"]),
        ("中文句子。English one. 又一句。", ["中文句子。", "English one.", "又一句。"]),
        ("Steps:\n1. Install it.\n2) Run it\n- Done", ["Steps:", "Install it.", "Run it", "Done"]),
        ("Run:\n```sh\nhelm install. x\nls\n```\nDone.", ["Run:", "helm install. x\nls", "Done."]),
        ("Cut:\n```\nhalf a bl", ["Cut:", "half a bl"]),
        ("...\n\n- \n[1]", []),
        ("", []),
    ],
)
def test_sentences(answer, expected):
    assert texts(answer) == expected


def test_marks_are_no_words_of_a_sentence():
    assert split_sentences("So it is [1][12].", 9)[0].text == "So it is ."


def test_the_limit_bounds_the_work():
    assert len(split_sentences("A b. " * 1000, 7)) == 7
    assert len(split_values('["a", "b", "c"]', 2)) == 2


@given(st.text(alphabet="aB1. \n。！[]`~-\"'", max_size=120))
@profile(max_examples=60)
def test_spans_are_in_order_and_no_word_is_lost(answer):
    found = split_sentences(answer, 999)

    assert all(left.end <= right.start for left, right in pairwise(found))
    assert all(answer[sentence.start : sentence.end].strip() for sentence in found)


def test_values_of_a_json_answer_carry_their_keys():
    answer = '{"name": "Lumo \\"x\\"", "price": 39.5, "tags": ["lamp", ""], "ok": true}'

    values = split_values(answer, 99)
    assert [value.text for value in values] == ['name: Lumo \\"x\\"', "price: 39.5", "tags: lamp"]
    assert answer[values[1].start : values[1].end] == "39.5"


def test_values_know_their_place():
    answer = '{"a/b": {"n": [1, "two 2", {"k": -2.5e3}]}, "c": "x"}'

    assert [(value.path, answer[value.start : value.end]) for value in split_values(answer, 9)] == [
        ("/a~1b/n/0", "1"),
        ("/a~1b/n/1", "two 2"),
        ("/a~1b/n/2/k", "-2.5e3"),
        ("/c", "x"),
    ]


@pytest.mark.parametrize("answer", ['{"a": [1, {"b": 2', "no JSON 7 ] } ,", ']]]{"a"', '{"\\u12": 3}'])
def test_values_of_what_is_no_json_have_some_place(answer):
    assert all(value.path is not None for value in split_values(answer, 9))
