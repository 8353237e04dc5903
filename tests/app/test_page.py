import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from app.admission import Admission
from app.api.application import Surroundings, build_api
from app.api.applications import analyze
from app.api.applications.application import Application, build_application
from app.config.gateway import GatewayConfig
from app.errors import ClientError, EngineFailed, Overloaded
from app.metrics import MemoryMetrics
from app.testing.pipeline import FakeCollection, FakePipeline, FakeScript
from scripts.screenshot import emulate, open_browser

PASSAGE = "Terms go into user_config.\n<b>词表</b> 可以在线修改。"
WORDS = ("护栏", "词表", "可以", "在线", "修改。", " 😀", " <i>No</i>", " restart", " [1].")
ANSWER = "".join(WORDS)
CONFIG = GatewayConfig.model_validate(
    {
        "models": {"tiny": {}, "small": {}},
        "profiles": {
            "default": {"model": "tiny", "retrieval": {"enabled": True, "collections": ["docs"]}},
            "plain": {"model": "small", "description": "No passages."},
        },
    }
)
WAIT_SECONDS = 20.0
READ_EVENTS = """
const [text, size, done] = arguments;
const bytes = new TextEncoder().encode(text);
const stream = new ReadableStream({
  start(controller) {
    for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
    controller.close();
  },
});
import("./static/sse.js").then(async ({ readEvents }) => {
  const found = [];
  for await (const data of readEvents(stream)) found.push(data);
  done(found);
}).catch((error) => done(String(error)));
"""


class KeyNeededError(ClientError):
    status = 401
    code = "invalid_api_key"


@dataclass
class Page:
    """The page in a browser, with the scripted pipeline behind it."""

    browser: Chrome
    url: str
    pipeline: FakePipeline

    def find(self, selector: str) -> WebElement:
        return self.until(lambda: next(iter(self.all(selector)), None), f"there is {selector}")

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def until(self, claim: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := claim()):
            assert time.monotonic() < deadline, f"waited {WAIT_SECONDS} s until {what}"
            time.sleep(0.03)
        return found

    def ask(self, question: str) -> None:
        self.find("#question").send_keys(question, Keys.ENTER)

    def answer(self, turn: int = 1) -> WebElement:
        """Return the answer of a turn once it is complete."""
        return self.find(f".turn:nth-child({turn}) .answer[aria-busy=false]")

    def requests(self) -> list[dict[str, Any]]:
        entries = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        return [entry["params"]["request"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with open_browser(log=True) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def gateway() -> Iterator[tuple[str, FakePipeline]]:
    pipeline = FakePipeline()
    api = build_api(lambda: pipeline, lambda: CONFIG)
    admission = Admission("analyze", 1, 1, MemoryMetrics())
    shape = Application("analyze", None, lambda: CONFIG.limits, admission, MemoryMetrics())
    beside = build_application(shape, analyze.router, Surroundings())

    async def routed(scope: Any, receive: Any, send: Any) -> None:
        await (beside if scope["path"].startswith("/analyze") else api)(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(routed, port=0, ws="none", lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/", pipeline
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def page(browser: Chrome, gateway: tuple[str, FakePipeline]) -> Iterator[Page]:
    url, pipeline = gateway
    pipeline.script = FakeScript(words=WORDS)
    shop = FakeCollection({"p1": {"text": "A lamp."}, "p2": {"text": "A chair."}})
    pipeline.collections = {"docs": FakeCollection({"first": {"text": PASSAGE}}), "shop": shop}
    pipeline.jobs.clear()
    browser.get("about:blank")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    emulate(browser, 1200, 900)
    browser.get(url)
    browser.execute_script("sessionStorage.clear()")
    shown = Page(browser, url, pipeline)
    shown.until(lambda: shown.find("#health").text == "tiny", "the profiles are loaded")
    yield shown
    strangers = [r["url"] for r in shown.requests() if not r["url"].startswith((url, "about:", "data:"))]
    assert strangers == []
    refused = "the server responded with a status of"
    assert [line for line in browser.get_log("browser") if refused not in line["message"]] == []


def test_an_answer_streams_in_and_shows_what_it_rests_on(page: Page) -> None:
    page.pipeline.rescript(seconds_per_word=0.15)
    page.ask("怎样修改词表？")
    growing = page.find(".answer[aria-busy=true] .text.growing")
    page.until(lambda: 0 < len(growing.text) < len(ANSWER), "a part of the answer is there")
    assert ANSWER.startswith(growing.text.rstrip())
    answer = page.answer()
    assert answer.find_element(By.CSS_SELECTOR, ".text").get_property("textContent") == ANSWER.replace("[1]", "1")
    assert len(answer.find_elements(By.CSS_SELECTOR, ".cited .mark")) == 1
    assert answer.find_elements(By.CSS_SELECTOR, "i:not(.track i), b:not(.chip b)") == []
    tags = {tag.get_attribute("data-tag"): tag.text for tag in answer.find_elements(By.CSS_SELECTOR, ".tag")}
    assert tags["confidence"] == "confidence 100 %"
    assert tags["guardrail"] == "guardrail passed"
    assert tags["model"] == "model tiny"
    times = {row.get_attribute("data-stage"): row.text for row in answer.find_elements(By.CSS_SELECTOR, "[data-stage]")}
    assert list(times) == ["guardrail", "generator", "first token", "total"]
    assert times["guardrail"].split() == ["guardrail", "0.1", "ms"]
    assert int(times["total"].split()[1].replace(",", "")) >= 1000


def test_a_chip_opens_its_passage_by_keyboard(page: Page) -> None:
    page.ask("how?")
    page.answer()
    chip = page.find(".chip")
    assert chip.get_attribute("aria-expanded") == "false"
    chip.send_keys(Keys.ENTER)
    panel = page.find(".passage")
    assert panel.find_element(By.CSS_SELECTOR, "blockquote").text == PASSAGE
    assert "collection docs" in panel.text
    assert "score 1.000" in panel.text
    assert chip.get_attribute("aria-expanded") == "true"
    page.find(".text .mark").click()
    assert not panel.is_displayed()


def test_switches_take_effect_in_the_request(page: Page) -> None:
    page.ask("one")
    page.answer(1)
    Select(page.find("#collection")).select_by_value("shop")
    page.ask("two")
    assert len(page.answer(2).find_elements(By.CSS_SELECTOR, ".chip")) == 2
    page.find("#retrieval").send_keys(Keys.SPACE)
    page.ask("three")
    assert page.answer(3).find_elements(By.CSS_SELECTOR, ".chip") == []
    Select(page.find("#profile")).select_by_value("plain")
    assert not page.find("#retrieval").is_selected()
    page.find("#retrieval").send_keys(Keys.SPACE)
    page.ask("four")
    page.answer(4)
    jobs = page.pipeline.jobs
    assert [job.retrieval and job.retrieval.collections for job in jobs] == [("docs",), ("shop",), None, ("docs",)]
    assert [(job.profile, job.model) for job in jobs] == [("default", "tiny")] * 3 + [("plain", "small")]


def test_history_goes_along_until_a_new_conversation_begins(page: Page) -> None:
    page.find(".examples button[lang=zh]").click()
    page.answer(1)
    page.ask("second")
    page.answer(2)
    sent = [(turn.role, turn.content) for turn in page.pipeline.jobs[1].messages]
    assert sent[1:] == [("assistant", ANSWER), ("user", "second")]
    page.find("#new").click()
    assert page.find("#welcome").is_displayed()
    page.ask("third")
    page.answer(1)
    assert [turn.content for turn in page.pipeline.jobs[2].messages] == ["third"]


def test_stop_drops_the_request_and_keeps_what_came(page: Page) -> None:
    page.pipeline.rescript(words=("word ",) * 400, seconds_per_word=0.03)
    page.ask("how?")
    page.until(lambda: page.find(".text").text.startswith("word word"), "words come in")
    page.find("#stop").click()
    assert "Stopped." in page.answer().text
    page.until(lambda: page.pipeline.running == 0, "the pipeline was told")
    assert page.find("#send").is_displayed()
    page.ask("again")
    page.until(lambda: page.find(".turn:nth-child(2) .text").text, "the next answer comes in")
    ActionChains(page.browser).send_keys(Keys.ESCAPE).perform()
    page.answer(2)


@pytest.mark.parametrize(
    ("script", "text", "sentence"),
    [
        (
            {"fail_before": Overloaded("The queue is full.", "generator", None, 7)},
            "",
            "The gateway asks to wait 7 seconds",
        ),
        ({"fail_after": EngineFailed("The engine gave up.", "generator")}, WORDS[0], "The engine gave up."),
        ({"blocked_terms": ("how",)}, "", "The guardrail blocked this."),
    ],
)
def test_an_error_is_a_sentence_and_leaves_no_trace_in_the_history(
    page: Page, script: dict[str, Any], text: str, sentence: str
) -> None:
    page.pipeline.rescript(**script)
    page.ask("how?")
    answer = page.answer()
    alert = answer.find_element(By.CSS_SELECTOR, "[role=alert]")
    assert sentence in alert.text
    assert answer.find_element(By.CSS_SELECTOR, ".text").text == text
    page.pipeline.script = FakeScript(words=WORDS)
    page.ask("next")
    page.answer(2)
    assert [turn.content for turn in page.pipeline.jobs[-1].messages] == ["next"]


def test_a_key_is_asked_for_only_when_one_is_needed(page: Page) -> None:
    assert page.all("input[type=password]") == []
    page.pipeline.rescript(fail_before=KeyNeededError("Send an API key."))
    page.ask("how?")
    field = page.find("dialog #key")
    page.pipeline.rescript(fail_before=None)
    field.send_keys("s3cret", Keys.ENTER)
    assert "护栏词表" in page.find(".answer[aria-busy=false] .cited").text
    assert page.all("dialog, [role=alert]") == []
    keyed = [request["headers"].get("Authorization") for request in page.requests() if request["method"] == "POST"]
    assert keyed == [None, "Bearer s3cret"]
    page.until(lambda: not page.find("#docs").is_displayed(), "the link that a key does not open is gone")


def test_the_page_fits_a_narrow_screen(page: Page) -> None:
    emulate(page.browser, 360, 740, dark=True)
    page.pipeline.collections["docs"].documents["first"] = {"text": "long " * 200, "source": "x" * 200}
    page.ask("how?" + "x" * 300)
    page.answer()
    page.find(".chip").click()
    width, ground = page.browser.execute_script(
        "return [document.scrollingElement.scrollWidth, getComputedStyle(document.body).backgroundColor]"
    )
    assert width <= 360
    assert ground == "rgb(17, 23, 26)"


def test_events_do_not_depend_on_where_the_bytes_are_cut(page: Page) -> None:
    lines = [": comment", "data: 护栏 😀", "", "event: x", "data:two", "data:  lines", "", "", "data: never ended"]
    for size in (1, 2, 3, 1000):
        for line_end in ("\n", "\r\n", "\r"):
            found = page.browser.execute_async_script(READ_EVENTS, line_end.join(lines), size)
            assert found == ["护栏 😀", "two\n lines"], (size, line_end)


def test_controls_have_names(page: Page) -> None:
    tree = page.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = ("button", "textbox", "combobox", "switch", "checkbox", "link")
    named = [(node["role"]["value"], node["name"]["value"]) for node in tree if node["role"]["value"] in controls]
    assert ("switch", "Retrieval") in named
    assert ("textbox", "Question") in named
    assert {("combobox", "Collection"), ("combobox", "Profile")} <= set(named)
    assert all(name for _, name in named)


def test_the_api_is_described_without_help_from_elsewhere(page: Page) -> None:
    page.browser.get(page.url + "docs")
    page.until(lambda: len(page.all("details")) > 8, "the endpoints are listed")
    chat = next(entry for entry in page.all("details") if "/v1/chat/completions" in entry.text)
    chat.find_element(By.CSS_SELECTOR, "summary").click()
    assert "messages" in chat.text
    assert "return_contexts" in chat.get_property("textContent")
    (beside,) = [entry for entry in page.all("details") if "/analyze" in entry.text]
    assert "timeout_seconds" in beside.get_property("textContent")
    assert [title.text for title in page.all("#contents h2")][-1].lower() == "applications"
