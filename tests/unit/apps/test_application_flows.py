"""The two compositions over steps that note what they are asked."""

import asyncio
import time
from dataclasses import replace

import pytest

from app.apps.analyze import Analyze
from app.apps.articles import NO_PAGES, Articles, Digest, Steps, chosen
from app.apps.guarding import Guard
from app.apps.messages import Entity, Prepared, Sentiment, SummaryRequest
from app.config.applications import AnalyzeSettings, ArticlesSettings
from app.errors import DeadlineExceeded, GuardrailBlocked, StageUnavailable
from app.messages import Finding, Verdict
from app.metrics import MemoryMetrics
from app.routing.rules import estimated_tokens

LONG = "Word after word makes a text that is long enough to be made short. " * 5
GOOD, BAD = Sentiment("4 stars", 0.9, 0.0), Sentiment("1 star", 0.8, 0.95)


def soon():
    return time.monotonic() + 5


class Says:
    """A step that gives one answer and notes its questions."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []

    async def __call__(self, value, deadline):
        self.asked.append(value)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Judge:
    def __init__(self, action="allow"):
        self.action = action
        self.asked = []

    async def call(self, request, deadline):
        self.asked.append(request)
        findings = () if self.action == "allow" else (Finding("terms", "weapons", self.action, 0, 0, 1),)
        return Verdict(self.action, findings, tuple(text.replace("bomb", "[redacted]") for text in request.texts))


class Shelf:
    """A source of articles in memory."""

    def __init__(self, **pages):
        self.pages = pages

    async def text_of(self, url, deadline):
        return self.pages[url]

    async def first_hit(self, search_term, deadline):
        return self.pages.get(search_term)


def guard(judge=None, policy="default"):
    return Guard(judge or Judge(), MemoryMetrics(), lambda: policy)


def analyze(judge=None, summary=None, **settings):
    summary = summary or Says("Short.")
    prepared = Says(Prepared(LONG, "en", 75))
    service = Analyze(prepared, Says(GOOD), summary, guard(judge), lambda: AnalyzeSettings(**settings))
    return service, prepared, summary


def articles(sentiment=GOOD, judge=None, **settings):
    found = (Entity("Ada", "PERSON", 0.99), Entity("Paris", "GPE", 0.97), Entity("Rome", "GPE", 0.5))
    steps = Steps(Says(sentiment), Says("Short."), Says(found))
    service = Articles(steps, Shelf(ada=LONG, page=LONG), guard(judge), lambda: ArticlesSettings(**settings))
    return service, steps


async def test_an_analysis_has_all_parts_and_asks_with_the_lengths_in_force():
    service, prepared, summary = analyze()
    analysis = await service.run(LONG, soon())
    assert (analysis.original_length, analysis.language) == (len(LONG), "en")
    assert (analysis.sentiment, analysis.summary, analysis.tokens) == (GOOD, "Short.", 75)
    assert prepared.asked[0].max_tokens == 512
    assert summary.asked == [SummaryRequest(LONG, 30, 100)]


async def test_a_short_text_is_its_own_summary():
    service, prepared, summary = analyze()
    short = "  Nothing to  make short here. "
    prepared.answer = Prepared(short.strip(), "en", 6)
    assert (await service.run(short, soon())).summary == short
    assert summary.asked == []


async def test_a_long_text_of_which_little_is_read_is_not_its_own_summary():
    service, prepared, _ = analyze(max_input_tokens=8)
    prepared.answer = Prepared("Word after word makes a text", "en", 8)
    assert (await service.run(LONG, soon())).summary == "Short."


async def test_the_number_of_words_that_is_short_is_a_setting():
    service, _, summary = analyze(min_summary_words=1000)
    assert (await service.run(LONG, soon())).summary == LONG
    assert summary.asked == []


async def test_what_the_guardrail_redacts_reaches_no_step():
    service, prepared, _ = analyze(Judge("redact"))
    await service.run("a bomb", soon())
    assert prepared.asked[0].text == "a [redacted]"


async def test_what_the_guardrail_blocks_is_refused_before_any_step():
    judge = Judge("block")
    service, prepared, _ = analyze(judge)
    with pytest.raises(GuardrailBlocked) as raised:
        await service.run("a bomb", soon())
    assert raised.value.param == "text"
    assert prepared.asked == []
    assert (judge.asked[0].direction, judge.asked[0].policy) == ("input", "default")


@pytest.mark.parametrize("stage", ["preprocess", "sentiment", "summary"])
async def test_the_error_of_a_deadline_names_the_step_that_had_the_request(stage):
    class Slow:
        async def __call__(self, value, deadline):
            await asyncio.sleep(5)

    slow = Slow()
    slow.stage = stage
    steps = {"preprocess": Says(Prepared(LONG, "en", 75)), "sentiment": Says(GOOD), "summary": Says("Short.")}
    steps[stage] = slow
    service = Analyze(*steps.values(), guard(), AnalyzeSettings)
    with pytest.raises(DeadlineExceeded) as raised:
        await service.run(LONG, time.monotonic() + 0.05)
    assert raised.value.stage == stage


async def test_a_step_that_fails_is_the_analysis_failing():
    service, _, _ = analyze(summary=Says(StageUnavailable("No replica.", "summary")))
    with pytest.raises(StageUnavailable):
        await service.run(LONG, soon())


async def test_a_digest_has_summary_and_the_surest_names():
    service, steps = articles()
    assert await service.of_text(LONG, soon()) == Digest(True, "", "Short.", ("Ada", "Paris"), estimated_tokens([LONG]))
    assert steps.sentiment.asked == [LONG.strip()]


async def test_a_negative_article_reaches_neither_summary_nor_entities():
    service, steps = articles(BAD)
    digest = await service.of_text(LONG, soon())
    assert (digest.success, digest.summary, digest.named_entities) == (False, "", ())
    assert digest.tokens > 0
    assert "negative (1 star, negative share 0.95)" in digest.message
    assert steps.summary.asked == []
    assert steps.entities.asked == []


@pytest.mark.parametrize(("threshold", "success"), [(0.95, False), (0.96, True)])
async def test_the_gate_s_threshold_is_a_setting(threshold, success):
    service, _ = articles(BAD, negative_threshold=threshold)
    assert (await service.of_text(LONG, soon())).success is success


async def test_a_search_without_a_hit_says_so():
    service, steps = articles()
    assert await service.of_search("nobody", soon()) == NO_PAGES
    assert (NO_PAGES.success, NO_PAGES.message) == (False, "No pages found.")
    assert steps.sentiment.asked == []


async def test_what_a_model_writes_is_judged_before_it_is_told():
    judge = Judge("redact")
    service, _, summary = analyze(judge)
    summary.answer = "Of a bomb."
    assert (await service.run(LONG, soon())).summary == "Of a [redacted]."
    service, steps = articles(judge=judge)
    steps.summary.answer = "Of a bomb."
    assert (await service.of_text(LONG, soon())).summary == "Of a [redacted]."
    assert [asked.direction for asked in judge.asked] == ["input", "output"] * 2


async def test_a_summary_that_the_guardrail_blocks_is_refused():
    class OutputJudge(Judge):
        async def call(self, request, deadline):
            self.action = "block" if request.direction == "output" else "allow"
            return await super().call(request, deadline)

    service, _ = articles(judge=OutputJudge())
    with pytest.raises(GuardrailBlocked, match="The summary was blocked") as raised:
        await service.of_text(LONG, soon())
    assert raised.value.param is None


async def test_a_text_that_comes_back_unchanged_was_judged_once():
    judge = Judge()
    service, _, _ = analyze(judge, min_summary_words=1000)
    await service.run(LONG, soon())
    assert [asked.direction for asked in judge.asked] == ["input"]


async def test_fetched_texts_are_judged_as_passages_and_cut():
    judge = Judge()
    service, steps = articles(judge=judge, max_chars=100)
    assert (await service.of_search("ada", soon())).success
    assert (await service.of_url("page", soon())).success
    assert [asked.direction for asked in judge.asked] == ["passage", "output"] * 2
    assert steps.sentiment.asked == [LONG[:100]] * 2


async def test_the_blanks_of_an_article_take_no_room():
    service, steps = articles(max_chars=100)
    assert (await service.of_text(" \n" * 500 + LONG[:40] + " " * 500 + "\r\n\t" + LONG[:40], soon())).success
    assert steps.sentiment.asked == [f"{LONG[:40].strip()}\n{LONG[:40].strip()}"]


async def test_a_blocked_article_is_refused():
    service, steps = articles(judge=Judge("block"))
    with pytest.raises(GuardrailBlocked, match="name another one"):
        await service.of_url("page", soon())
    assert steps.sentiment.asked == []


def test_names_are_chosen_once_each_by_their_score():
    ada = Entity("Ada", "PERSON", 0.96)
    found = (ada, Entity("Rome", "GPE", 0.98), replace(ada, score=0.99), Entity("Oslo", "GPE", 0.94))
    assert chosen(found, 0.95, 5) == ("Ada", "Rome")
    assert chosen(found, 0.95, 1) == ("Ada",)
    assert chosen(found, 0.5, 5) == ("Ada", "Rome", "Oslo")
