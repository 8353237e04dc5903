"""Words for full-text search."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.stores.terms import tokenize, unique_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Zebra-77 code", ["zebra", "77", "code"]),
        ("max_tokens=5", ["max", "token", "5"]),
        ("ＡＢＣ ｆｕｌｌ", ["abc", "full"]),
        ("怎么安装向量数据库", ["安装", "向量", "数据", "据库", "数据库"]),
        ("用Ray部署", ["ray", "部署"]),
        ("カタカナ", ["カタ", "タカ", "カナ"]),
        ("of the", []),
        ("🦓", []),
        ("", []),
    ],
)
def test_tokens(text, terms):
    assert tokenize(text) == terms


@pytest.mark.parametrize(
    "words",
    [
        ["install", "installs", "installed", "installing"],
        ["stop", "stopped", "stopping", "stops"],
        ["cache", "caches", "cached", "caching"],
        ["policy", "policies"],
        ["update", "updates", "updated", "updating"],
        ["replica", "replicas"],
        ["class", "classes"],
    ],
)
def test_english_inflections_meet(words):
    assert len({tokenize(word)[0] for word in words}) == 1


@pytest.mark.parametrize("pair", [("status", "statu"), ("bus", "bu"), ("king", "k"), ("red", "r"), ("thing", "th")])
def test_stems_stay_apart(pair):
    assert tokenize(pair[0]) != tokenize(pair[1])


@settings(max_examples=30)
@given(st.text())
def test_any_text_gives_plain_terms(text):
    assert all(term and not any(char.isspace() for char in term) for term in tokenize(text))


def test_long_questions_keep_both_ends():
    words = [f"w{number}x" for number in range(100)]
    assert unique_terms(" ".join([*words, *words]), 4) == ["w0x", "w1x", "w98x", "w99x"]
    assert unique_terms("zebra zebra lion", 4) == ["zebra", "lion"]
