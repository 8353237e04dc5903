"""What small parts of the applications make of texts: words, normal form, stars, and answers of the core LLM."""

import pytest

from app.apps.backends.core_model import CoreModel, entities_task, sentiment_task, summary_task
from app.apps.backends.vader import in_stars
from app.apps.messages import Entity, Sentiment, SummaryRequest
from app.apps.wording import first_words, has_words, normalised, normalised_start
from app.errors import ContextLengthExceeded, EngineFailed, ModelNotFound, SchemaRejected
from app.messages import Delta, Usage


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), ("...", 0), ("one", 1), ("it's well-known, isn't it?", 4), ("你好世界", 4), ("Ray Serve 很快", 4)],
)
def test_words_are_counted_alike_with_and_without_blanks(text, words):
    assert has_words(text, words + 1) is False
    assert has_words(text, words) or words == 0


def test_the_first_words_keep_what_stands_between_them():
    assert first_words("One, two – three.", 2) == "One, two"
    assert first_words("One, two.", 9) == "One, two."


def test_normal_form_composes_and_drops_what_nobody_sees():
    assert normalised("  cafe\u0301\u0000 \t au\r\n\r\n\u200b lait ") == "caf\u00e9 au\nlait"


@pytest.mark.parametrize("padding", [" ", "\n", "\u200b", "\r\n\t", "\u3000\u200b"])
def test_the_start_of_a_text_is_counted_after_blanks_are_folded(padding):
    padded = padding * 200_000 + "one" + padding * 200_000 + "cafe\u0301"
    assert normalised_start(padded, 100) == normalised(padded)
    assert normalised_start(padded, 3) == "one"
    long = " ".join(["one", "two\n", "three"] * 50_000)
    assert normalised_start(long, 100_000) == normalised(long)[:100_000].rstrip()


@pytest.mark.parametrize(
    ("compound", "label", "score", "negative"),
    [
        (-2, "1 star", 1, 1),
        (-1, "1 star", 1, 1),
        (-0.75, "2 stars", 0.5, 1),
        (-0.25, "3 stars", 0.5, 0.5),
        (0, "3 stars", 1, 0),
        (0.3, "4 stars", 0.6, 0),
        (1, "5 stars", 1, 0),
    ],
)
def test_a_lexicon_s_value_becomes_stars(compound, label, score, negative):
    assert in_stars(compound) == Sentiment(label, score, negative)


class Engine:
    """Writes one text in two pieces."""

    def __init__(self, text):
        self.text = text
        self.requests = []

    async def run(self, request):
        self.requests.append(request)
        half = len(self.text) // 2
        yield Delta(0, self.text[:half])
        yield Delta(0, self.text[half:], finish_reason="stop")
        yield Delta(-1, usage=Usage(3, 4))


async def asked(text, task, request):
    engine = Engine(text)
    (answer,) = await CoreModel(engine, "tiny", task, "step").answer([request])
    return answer, engine.requests[0]


async def test_the_core_model_rates_with_a_schema():
    answer, request = await asked('{"label": "2 stars", "score": 0.7}', sentiment_task(["2 STARS"]), "Bad tea.")
    assert answer == Sentiment("2 stars", 0.7, 0.7)
    assert "Bad tea." in request.messages[0]["content"]
    assert request.model == "tiny"
    assert request.response_format["json_schema"]["schema"]["required"] == ["label", "score"]


async def test_scores_are_held_to_their_bounds():
    assert (await asked('{"label": "4 stars", "score": 95}', sentiment_task(["1 star"]), "Tea."))[0].score == 1
    text = '{"entities": [{"text": "Ada", "label": "PERSON", "score": -2}]}'
    assert (await asked(text, entities_task(), "Ada."))[0] == (Entity("Ada", "PERSON", 0.0),)


@pytest.mark.parametrize(
    ("refusal", "raised", "words"),
    [
        (
            ContextLengthExceeded("Shorten the messages.", "generator", "messages"),
            ContextLengthExceeded,
            "send a shorter",
        ),
        (SchemaRejected("No grammar.", "generator", "response_format"), EngineFailed, "refuses .*No grammar"),
        (ModelNotFound("No tiny.", "generator", "model"), EngineFailed, "refuses .*No tiny"),
    ],
)
async def test_callers_are_not_told_of_a_question_that_they_did_not_ask(refusal, raised, words):
    class Refuses:
        async def run(self, request):
            raise refusal
            yield

    with pytest.raises(raised, match=words) as found:
        await CoreModel(Refuses(), "tiny", sentiment_task(["1 star"]), "sentiment").answer(["Tea."])
    assert found.value.stage == "sentiment"
    assert found.value.param in ("text", None)


async def test_the_core_model_summarises_within_bounds():
    answer, request = await asked('{"summary": " Tea. "}', summary_task(), SummaryRequest("Long tea.", 30, 100))
    assert answer == "Tea."
    bounds = request.response_format["json_schema"]["schema"]["properties"]["summary"]
    assert (bounds["minLength"], bounds["maxLength"]) == (60, 400)


async def test_names_that_the_text_does_not_hold_are_dropped():
    text = (
        '{"entities": [{"text": "Ada", "label": "PERSON", "score": 1}, {"text": "Eve", "label": "PERSON", "score": 1}]}'
    )
    answer, _ = await asked(text, entities_task(), "Ada wrote it.")
    assert answer == (Entity("Ada", "PERSON", 1.0),)


@pytest.mark.parametrize("text", ['{"summary": "broken', "[]", "{}"])
async def test_a_broken_answer_is_the_engine_s_fault(text):
    with pytest.raises(EngineFailed):
        await asked(text, summary_task(), SummaryRequest("Tea.", 1, 9))
