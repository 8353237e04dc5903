"""Cutting documents into passages."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config.retrieval import ChunkingConfig
from app.errors import ConfigError
from app.ingestion.chunking import estimate_tokens, halve, split_document, split_text

SMALL = ChunkingConfig(size_tokens=16, overlap_tokens=0)
OVERLAP = ChunkingConfig(size_tokens=16, overlap_tokens=6)


@pytest.mark.parametrize(
    ("text", "tokens"), [("hello", 1), ("retriever", 2), ("你好，世界", 5), ("", 0), ("a b c.", 4)]
)
def test_estimates(text, tokens):
    assert estimate_tokens(text) == tokens


def test_short_text_is_one_passage():
    assert split_document("Note: {{ 7*191 }} {% x %}", "", ChunkingConfig()) == ["Note: {{ 7*191 }} {% x %}"]


def test_english_is_cut_between_sentences():
    text = "Zebras run very fast here. Lions sleep the whole day. Birds sing in the morning. Fish swim."
    pieces = split_text(text, SMALL)
    assert len(pieces) > 1
    assert " ".join(pieces) == text
    assert all(piece.endswith(".") and estimate_tokens(piece) <= 16 for piece in pieces)


def test_chinese_is_cut_between_sentences():
    text = "斑马跑得很快。狮子整天睡觉！鸟儿在早晨唱歌？鱼儿游来游去；完了。"
    pieces = split_text(text, SMALL)
    assert len(pieces) > 1
    assert "".join(pieces) == text
    assert all(piece[-1] in "。！？；" for piece in pieces)


def test_neighbours_share_whole_sentences():
    pieces = split_text("One two three. Four five six. Seven eight nine. Ten eleven twelve. End.", OVERLAP)
    for left, right in itertools.pairwise(pieces):
        shared = right.split(". ")[0]
        assert shared in left
        assert shared != right


def test_headings_stand_above_their_passages():
    text = "Intro.\n# Guide\nFirst.\n## Install\nRun it.\n### On Linux\nUse make.\n## Remove\nStop it.\n"
    assert split_document(text, "Baton", SMALL) == [
        "Baton\nIntro.",
        "Baton › Guide\nFirst.",
        "Baton › Guide › Install\nRun it.",
        "Baton › Guide › Install › On Linux\nUse make.",
        "Baton › Guide › Remove\nStop it.",
    ]


def test_fences_hide_headings():
    assert split_document("```sh\n# not a heading\nmake\n```", "", ChunkingConfig()) == [
        "```sh\n# not a heading\nmake\n```"
    ]


def test_headings_alone_are_kept():
    assert split_document("# Only\n## Headings", "", ChunkingConfig()) == ["# Only\n## Headings"]


def test_title_is_not_repeated():
    assert split_document("# Baton\nText.", "Baton", SMALL) == ["Baton\nText."]


def words(text):
    return re.findall(r"\w", text)


@settings(max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("a b。.!\n#中文`"), max_size=400))
def test_nothing_is_lost_and_no_piece_is_too_large(text):
    pieces = split_text(text, SMALL)
    assert words("".join(pieces)) == words(text)
    assert all(piece.strip() and estimate_tokens(piece) <= 20 for piece in pieces)


@settings(max_examples=40)
@given(st.text(st.sampled_from("ab 。.中\n"), min_size=1, max_size=60).filter(str.strip))
def test_halving_keeps_every_word_and_ends(text):
    halves = halve(text)
    assert words("".join(halves)) == words(text)
    assert all(len(half) < len(text) or len(text) == 1 for half in halves)


@pytest.mark.parametrize("text", ["." * 20_000, "a" * 20_000, "。" * 20_000, '"' * 20_000, '."' * 20_000, " " * 20_000])
def test_odd_texts_take_no_longer_than_plain_ones(text):
    started = time.process_time()
    split_document(text, "", ChunkingConfig())
    assert time.process_time() - started < 2.0


def test_overlap_is_bounded():
    with pytest.raises(ConfigError, match="at most half"):
        ChunkingConfig.parse({"sizeTokens": 20, "overlapTokens": 11}, "chunking")
