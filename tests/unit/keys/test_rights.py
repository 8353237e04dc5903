"""Scopes: names and patterns, and what a request has to have in them."""

from __future__ import annotations

import time

import pytest

from app.keys.file import KeyScopes
from app.keys.rights import ALL, Rights


@pytest.mark.parametrize(
    ("scope", "name", "fits"),
    [
        ("docs", "docs", True),
        ("docs", "docs2", False),
        ("docs", "Docs", False),
        ("*", "anything", True),
        ("*", "", True),
        ("docs-*", "docs-", True),
        ("docs-*", "docs", False),
        ("*-en", "docs-en", True),
        ("*-en", "-en-x", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-c-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("**", "x", True),
        ("a.c", "abc", False),
        ("fast@*", "fast@canary", True),
        ("fast", "fast@canary", False),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_does(scope: str, name: str, fits: bool) -> None:
    rights = Rights(KeyScopes(models=(scope,), collections=("other",)))
    assert rights.sees_model(name) is fits
    assert not rights.sees_profile(name)
    assert not rights.sees_collection(name)


def test_a_long_name_takes_no_time() -> None:
    rights = Rights(KeyScopes(models=("*a" * 60 + "b",)))
    began = time.perf_counter()
    assert not rights.sees_model("a" * 1_000_000)
    assert time.perf_counter() - began < 1


def test_without_keys_everything_may_be_used() -> None:
    assert ALL.sees_model("x")
    assert ALL.sees_profile("x")
    ALL.check_searched(("x",))
    ALL.check_ingest("x")
    ALL.check_drop("x")
    assert ALL.tenant == ""
