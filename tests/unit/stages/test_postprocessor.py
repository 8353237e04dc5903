import threading

import pytest

from app.config.answers import PostprocessorConfig
from app.config.embedder import EmbedderConfig
from app.errors import ConfigError, EmbeddingMismatch, StageUnavailable
from app.messages import Choice, PostprocessRequest, Retrieved
from app.stages.postprocessor import Postprocessor
from app.stores.contract import StoredPassage
from app.stores.payload import Hit, build_table, encode_tokens
from app.testing.embedder import FakeEmbedder

DIMENSION = 64
TEXTS = (
    "The head node needs eight gigabytes of memory.",
    "A rollback is one command called helm rollback.",
    "头节点需要八个吉字节内存。",
    "Bananas are yellow and bread is brown.",
)
FORMAT = {"type": "json_schema", "json_schema": {"schema": {"type": "object", "required": ["memory"]}}}


def retrieved(dimension: int = DIMENSION) -> Retrieved:
    encoded = FakeEmbedder(dimension).encode(TEXTS, "passage", tokens=True)
    hits = [
        Hit(
            StoredPassage(
                id=f"p{row}",
                text=text,
                source=f"{row}.md",
                metadata="{}",
                tokens=encode_tokens(encoded.tokens[encoded.offsets[row] : encoded.offsets[row + 1]]),
            ),
            "docs",
            0.9,
        )
        for row, text in enumerate(TEXTS)
    ]
    return Retrieved(build_table(hits, dimension), 3)


@pytest.fixture(scope="module")
def payload() -> Retrieved:
    return retrieved()


def start(settings: PostprocessorConfig | None = None) -> Postprocessor:
    stage = Postprocessor(EmbedderConfig(kind="fake", dimension=DIMENSION), settings or PostprocessorConfig())
    stage.start()
    return stage


@pytest.fixture(scope="module")
def stage() -> Postprocessor:
    return start()


def ask(*texts: str, rows=(0, 1, 2), finish_reason="stop", **more) -> PostprocessRequest:
    choices = tuple(Choice(place, text, finish_reason) for place, text in enumerate(texts))
    return PostprocessRequest(choices=choices, rows=rows, **more)


def test_each_sentence_cites_the_passage_it_rests_on(stage, payload):
    answer = "Use helm rollback, one command. The head node needs eight gigabytes of memory [1]. 头节点需要八个吉字节。"

    (report,) = stage.run(ask(answer), payload).choices
    assert [(citation.mark, citation.id) for citation in report.citations] == [(2, "p1"), (1, "p0"), (3, "p2")]
    assert [answer[citation.start : citation.end] for citation in report.citations][1].startswith("The head node")
    assert all(citation.collection == "docs" and 0.5 <= citation.score <= 1 for citation in report.citations)
    assert report.citations[0].source == "1.md"
    assert 0.5 < report.grounding <= 1
    assert 0.5 < report.confidence <= 1


def test_what_no_passage_of_the_prompt_says_is_not_grounded(stage, payload):
    (report,) = stage.run(ask("Penguins swim fast. Bananas are yellow."), payload).choices

    assert report.citations == ()
    assert report.grounding < 0.2


def test_a_collection_of_one_passage_grounds_as_well(stage, payload):
    alone = Retrieved(payload.passages.slice(1, 1).combine_chunks(), 1)

    (report,) = stage.run(ask("Helm rollback is one command.", rows=(0,)), alone).choices
    assert [citation.id for citation in report.citations] == ["p1"]
    assert report.grounding > 0.9


def test_marks_follow_the_rows_of_the_prompt(stage, payload):
    (report,) = stage.run(ask("Helm rollback is one command.", rows=(2, 1)), payload).choices

    assert [(citation.mark, citation.id) for citation in report.citations] == [(2, "p1")]


@pytest.mark.parametrize("case", ["no payload", "no rows", "no text", "only marks"])
def test_without_passages_or_sentences_nothing_is_grounded(stage, payload, case):
    text = {"no text": " \n", "only marks": "[1] …"}.get(case, "The head node needs memory.")
    request = ask(text, rows=() if case == "no rows" else (0,))

    (report,) = stage.run(request, None if case == "no payload" else payload).choices
    assert (report.grounding, report.confidence, report.citations, report.json) == (None, None, (), None)


def test_without_passages_confidence_rests_on_logprobs(stage):
    request = PostprocessRequest(choices=(Choice(0, "Oslo.", "stop", (-0.1, -0.2)),))

    assert 0 < stage.run(request).choices[0].confidence < 1


def test_an_answer_of_tool_calls_has_no_report_of_its_text(stage, payload):
    choice = Choice(0, "", "tool_calls", (-0.1,), has_tool_calls=True)

    (report,) = stage.run(PostprocessRequest((choice,), (0,), FORMAT), payload).choices
    assert (report.grounding, report.confidence, report.json) == (None, None, None)


def test_json_answers_are_checked_and_grounded_by_value(stage, payload):
    good = '{"memory": "eight gigabytes of memory"}'

    first, second = stage.run(ask(good, "{}", response_format=FORMAT, keep=2), payload).choices
    assert (first.json["status"], second.json["status"], second.json["path"]) == ("valid", "invalid", "")
    assert [good[citation.start : citation.end] for citation in first.citations] == ["eight gigabytes of memory"]


def test_json_cut_by_the_token_limit_is_truncated(stage):
    (report,) = stage.run(ask('{"memory": "ei', finish_reason="length", response_format=FORMAT)).choices

    assert report.json["status"] == "truncated"


def test_the_best_of_a_surplus_is_kept_best_first(stage, payload):
    answers = ("Penguins swim.", "Helm rollback is one command.", "The helm of penguins is yellow.", "")

    kept = stage.run(ask(*answers, keep=2), payload).choices
    assert [report.index for report in kept] == [1, 2]
    assert kept[0].confidence > kept[1].confidence


def test_without_a_surplus_the_order_stays(stage, payload):
    kept = stage.run(ask("Penguins swim.", "Helm rollback is one command.", keep=2), payload).choices

    assert [report.index for report in kept] == [0, 1]


def test_usable_json_comes_before_a_confident_answer_without_it(stage, payload):
    request = ask("Helm rollback is one command.", '{"memory": 1}', response_format=FORMAT, keep=1)

    assert [report.index for report in stage.run(request, payload).choices] == [1]


def test_another_dimension_is_a_clear_conflict(stage):
    with pytest.raises(EmbeddingMismatch, match="32 dimensions and the embedder has 64") as caught:
        stage.run(ask("The head node."), retrieved(32))
    assert caught.value.stage == "postprocessor"


def test_work_is_bounded_by_characters_and_sentences(payload):
    sentence = "The head node needs eight gigabytes of memory. "

    few = start(PostprocessorConfig(max_sentences=2)).run(ask(sentence * 9), payload).choices[0]
    short = start(PostprocessorConfig(max_answer_chars=len(sentence))).run(ask(sentence * 9), payload).choices[0]
    assert (len(few.citations), len(short.citations)) == (2, 1)


def test_the_threshold_changes_live_and_bad_settings_change_nothing(payload):
    stage = start()
    assert stage.run(ask("The head node needs memory."), payload).choices[0].citations
    stage.configure(PostprocessorConfig(citation_threshold=1))
    with pytest.raises(ConfigError):
        stage.configure({"citationThreshold": 0})

    assert stage.run(ask("The head node needs memory."), payload).choices[0].citations == ()


def test_a_stage_that_is_not_started_says_so(payload):
    stage = start()
    stage.close()
    with pytest.raises(StageUnavailable):
        stage.run(ask("x"), payload)


def test_an_encoder_other_than_the_calibrated_one_is_logged(caplog):
    start()

    assert "calibrat" in caplog.text


def test_threads_get_the_same_report(stage, payload):
    request = ask("Use helm rollback. The head node needs memory.")
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(stage.run(request, payload))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports == [stage.run(request, payload)] * 6


def test_a_number_that_stands_in_no_passage_is_named_and_lowers_grounding_and_confidence(stage, payload):
    right, wrong = "The head node needs 8 gigabytes of memory [1].", "The head node needs 9 gigabytes of memory [1]."

    first, second = stage.run(ask(right, wrong, keep=2), payload).choices
    assert first.unsupported_numbers == ()
    (number,) = second.unsupported_numbers
    assert (wrong[number.start : number.end], number.number, number.path) == ("9", "9", None)
    assert second.grounding < first.grounding / 2
    assert second.confidence < first.confidence / 2
    assert second.citations == ()


def test_a_wrong_number_in_json_is_named_by_its_path(stage, payload):
    wrong = '{"memory": "eight gigabytes of memory", "nodes": [{"cores": 1.25, "caf\\u00e9": "8"}]}'
    right = wrong.replace("1.25", "8")

    first, second = stage.run(ask(right, wrong, response_format=FORMAT, keep=2), payload).choices
    assert first.unsupported_numbers == ()
    assert [(number.number, number.path) for number in second.unsupported_numbers] == [("1.25", "/nodes/0/cores")]
    assert second.json["status"] == "valid"
    assert second.confidence < first.confidence / 2


def test_where_no_passage_was_shown_every_number_is_named(stage, payload):
    wrong = '{"product": "tent", "reason": "no [1]", "price": 1.5, "caf\\u00e9": "for 2"}'

    (json,) = stage.run(ask(wrong, rows=(), response_format=FORMAT), payload).choices
    assert [(number.number, number.path) for number in json.unsupported_numbers] == [("1.5", "/price"), ("2", "/café")]
    (plain,) = stage.run(ask("It costs 12.50 [1], in 3 days.", rows=()), payload).choices
    assert [(number.number, number.path) for number in plain.unsupported_numbers] == [("12.50", None), ("3", None)]
    assert (plain.grounding, plain.citations) == (None, ())


def test_without_retrieval_no_number_is_named(stage):
    (report,) = stage.run(ask("It costs 12.50, in 3 days.", rows=()), None).choices
    assert report.unsupported_numbers == ()
