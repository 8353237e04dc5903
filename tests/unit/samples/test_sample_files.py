"""The shipped collections, questions and profiles are complete and fit together."""

import json
import re
from collections import Counter
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from app.config.profile import ProfileConfig
from app.config.response_format import openai_json

SAMPLES = Path(__file__).parents[3] / "samples"
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n\n(.*)\Z", re.DOTALL)
HAN = re.compile(r"[\u4e00-\u9fff]")
TOPICS = {"answers", "api", "basics", "configuration", "data"}
TOPICS |= {"operations", "performance", "scaling", "stages", "start"}
CATEGORIES = {"audio", "garden", "home", "kitchen", "office", "outdoor", "toys", "wellness"}


def read_lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_documents(lang: str) -> dict[str, tuple[dict[str, str], str]]:
    documents = {}
    for path in sorted((SAMPLES / "docs" / lang).glob("*.md")):
        match = FRONT_MATTER.match(path.read_text("utf-8"))
        assert match, f"{path} has no front matter"
        documents[path.stem] = (yaml.safe_load(match[1]), match[2])
    return documents


def read_products() -> list[dict[str, object]]:
    return read_lines(SAMPLES / "shop" / "products.jsonl")


@pytest.mark.parametrize(("lang", "least"), [("en", 24), ("zh", 20)])
def test_documents_have_front_matter_and_fitting_length(lang: str, least: int) -> None:
    documents = read_documents(lang)
    assert len(documents) >= least
    for stem, (head, body) in documents.items():
        assert head.keys() == {"id", "title", "lang", "topic"}
        assert (head["id"], head["lang"]) == (f"{stem}-{lang}", lang)
        assert head["topic"] in TOPICS
        assert body.startswith(f"# {head['title']}\n")
        assert body.count("\n## ") >= 2
        size = len(body.split()) if lang == "en" else len(re.findall(r"\S", body))
        assert 120 <= size <= 600, stem
        assert bool(HAN.search(body)) == (lang == "zh")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_titles_are_unique(lang: str) -> None:
    titles = Counter(head["title"] for head, _ in read_documents(lang).values())
    assert max(titles.values()) == 1


def test_documents_number_at_least_forty() -> None:
    assert len(read_documents("en")) + len(read_documents("zh")) >= 40


def test_products_have_typed_fields() -> None:
    products = read_products()
    assert Counter(product["lang"] for product in products) == {"en": 30, "zh": 30}
    assert len({product["id"] for product in products}) == 60
    assert len({product["title"] for product in products}) == 60
    for product in products:
        assert list(product) == ["id", "title", "text", "price", "category", "lang", "in_stock"]
        assert isinstance(product["price"], float)
        assert product["price"] > 0
        assert isinstance(product["in_stock"], bool)
        assert product["category"] in CATEGORIES


def test_products_are_described_at_length_with_their_price() -> None:
    for product in read_products():
        text = str(product["text"])
        size, least, most = (len(text.split()), 40, 90) if product["lang"] == "en" else (len(text), 60, 150)
        assert least <= size <= most, product["id"]
        assert f"{product['price']:.2f}" in text
        assert bool(HAN.search(text)) == (product["lang"] == "zh")


@pytest.mark.parametrize(("collection", "count"), [("docs", 20), ("shop", 8)])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_questions_expect_what_exists(collection: str, count: int, lang: str) -> None:
    known = {head["id"] for each in ("en", "zh") for head, _ in read_documents(each).values()}
    if collection == "shop":
        known = {str(product["id"]) for product in read_products()}
    rows = read_lines(SAMPLES / "questions" / f"{collection}.{lang}.jsonl")
    assert len({row["question"] for row in rows}) == count
    for row in rows:
        assert {"question", "lang", "expected"} <= row.keys() <= {"question", "lang", "expected", "filter"}
        assert row["lang"] == lang
        assert row["expected"]
        assert set(row["expected"]) <= known  # type: ignore[call-overload]
        assert bool(HAN.search(str(row["question"]))) == (lang == "zh")


def test_questions_are_not_copied_from_documents() -> None:
    bodies = [body for lang in ("en", "zh") for _, body in read_documents(lang).values()]
    bodies += [str(product["text"]) for product in read_products()]
    for path in sorted((SAMPLES / "questions").glob("*.jsonl")):
        for row in read_lines(path):
            question = str(row["question"]).rstrip("?？")
            assert not any(question in body for body in bodies), question


def read_profile(name: str) -> ProfileConfig:
    local = yaml.safe_load((SAMPLES.parent / "config" / "local.yaml").read_text("utf-8"))
    return ProfileConfig.parse(local["settings"]["profiles"][name], name)


@pytest.mark.parametrize("collection", ["docs", "shop"])
def test_profiles_are_valid_and_search_their_collection(collection: str) -> None:
    profile = read_profile("default" if collection == "docs" else "shopping")
    assert profile.retrieval.enabled
    assert profile.retrieval.collections == (collection,)
    assert len(profile.system_prompt.split()) <= 60


def test_shopping_schema_takes_a_product_and_refuses_others() -> None:
    response_format = openai_json(read_profile("shopping").response_format)
    assert response_format
    schema = jsonschema_rs.validator_for(response_format["json_schema"]["schema"])
    answer = {"product": "Gramling kitchen scale", "reason": "It weighs in tenths of a gram.", "price": 19.9}
    assert schema.is_valid(answer)
    assert not schema.is_valid({**answer, "price": "19.9"})
    assert not schema.is_valid({"product": "Gramling kitchen scale"})
