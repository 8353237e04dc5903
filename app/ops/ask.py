"""Ask the gateway from a terminal: ``python -m app.ops.ask "question"``.

The answer is streamed; its sources and the stages' times stand under it. Where the gateway asks for an API key, it goes
into the environment variable ``BATON_API_KEY``. Exit codes: 0 answered; 1 the gateway refused
or the answer broke off; 2 wrong usage, or no gateway at the address; 130 interrupted (the stream is closed first).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import httpx

from app.errors import bounded
from app.ops.api_key import VARIABLE, api_key
from app.ops.arguments import gateway

DEFAULT_URL = "http://127.0.0.1:8000"
STAGES = ("guardrail", "retriever", "assembler", "generator", "postprocessor")
ANSWERED, REFUSED, UNREACHABLE, INTERRUPTED = 0, 1, 2, 130

_CONNECT_SECONDS = 5.0
# Longer than any deadline the gateway grants by default, so that its own error event comes first.
_SILENCE_SECONDS = 180.0
_SUMS = ("first_token", "total")
_BAR_CELLS = 24
_SOURCE_CELLS = 44
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AskError(Exception):
    """The question got no (whole) answer. ``message`` is one sentence, ``exit_code`` what the process ends with."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask of whom. Empty ``collection`` and ``profile`` leave the choice to the gateway."""

    text: str
    url: str = DEFAULT_URL
    collection: str = ""
    profile: str = ""
    retrieval: bool = True
    key: str = ""

    def body(self) -> dict[str, Any]:
        """Return the chat completion request that is sent."""
        rag: dict[str, Any] = {}
        if not self.retrieval:
            rag = {"enabled": False}
        elif self.collection:
            rag = {"enabled": True, "collection": self.collection}
        return {
            "messages": [{"role": "user", "content": self.text}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"rag": rag} if rag else {}),
            **({"profile": self.profile} if self.profile else {}),
        }


@dataclass(slots=True)
class Answer:
    """What came back. Times are milliseconds as this process saw them; ``first_token`` is None without any text."""

    text: str = ""
    finish_reason: str | None = None
    baton: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] | None = None
    first_token: float | None = None
    total: float = 0.0

    def take(self, chunk: dict[str, Any]) -> str:
        """Note what a chunk says; returns the text that it adds to the answer."""
        self.baton = chunk.get("baton") or self.baton
        self.usage = chunk.get("usage") or self.usage
        added = ""
        for choice in chunk.get("choices") or ():
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            added += (choice.get("delta") or {}).get("content") or ""
        self.text += added
        return added

    def as_json(self) -> dict[str, Any]:
        """Return everything, for programs."""
        return {
            "answer": self.text,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
            "first_token_ms": self.first_token,
            "total_ms": self.total,
            "baton": self.baton,
        }


# --- the wire ---------------------------------------------------------------------------------------------------------


def read_events(pieces: Iterator[bytes]) -> Iterator[str]:
    """Yield the ``data`` of each server-sent event out of bytes that were cut anywhere.

    Lines end in LF or CRLF, as the gateway and the proxies before it write them.
    """
    rest, data = b"", list[str]()
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text.startswith("data:"):
                data.append(text[5:].removeprefix(" "))
            elif not text and data:
                yield "\n".join(data)
                data = []


def ask(question: Question, show: Callable[[str], None]) -> Answer:
    """Send the question and hand each piece of the answer to ``show``; returns the whole.

    Raises AskError with a sentence for every way in which this can go wrong.
    """
    headers = {"Accept": "text/event-stream"} | ({"Authorization": f"Bearer {question.key}"} if question.key else {})
    answer = Answer()
    try:
        url = httpx.URL(question.url.rstrip("/") + "/v1/chat/completions")
        timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
        # A proxy from the environment is meant for other hosts, never for this machine's own gateway. Certificates take
        # longer to load than a first token, so they are loaded for https only (always checked there).
        remote, tls = url.host not in _LOOPBACK, url.scheme == "https"
        with httpx.Client(timeout=timeout, trust_env=remote, verify=tls) as client:
            began = time.monotonic()
            with client.stream("POST", url, json=question.body(), headers=headers) as response:
                _refuse_unless_stream(response, question.url)
                for chunk in _chunks(response):
                    if added := answer.take(chunk):
                        answer.first_token = answer.first_token or _since(began)
                        show(added)
            answer.total = _since(began)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        raise _explain(error, question.url, bool(answer.text)) from error
    return answer


def _since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


def _chunks(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for data in read_events(response.iter_bytes()):
        if data == "[DONE]":
            return
        chunk = _object(data)
        if error := chunk.get("error"):
            raise AskError(_sentence(error))
        yield chunk
    raise AskError("The stream ended before the answer was complete.")


def _object(data: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        if isinstance(found := json.loads(data), dict):
            return found
    raise AskError("The gateway sent an event that is no JSON object.")


def _refuse_unless_stream(response: httpx.Response, url: str) -> None:
    kind = response.headers.get("content-type", "")
    if response.status_code == httpx.codes.OK and kind.startswith("text/event-stream"):
        return
    response.read()
    try:
        error = response.json()["error"]
    except (ValueError, KeyError, TypeError):
        told = f"{response.status_code}, {bounded(kind) if kind else 'without a Content-Type'}"
        raise AskError(
            f"What answers at {url} is no Baton gateway (it answered {told}): give the address that `make run` names "
            "as OpenAI API, with --url."
        ) from None
    sentence = _sentence(error)
    if wait := response.headers.get("retry-after"):
        sentence += f" Try again in {wait} s."
    if response.status_code == httpx.codes.UNAUTHORIZED:
        sentence += f" Give a key in the environment variable {VARIABLE}."
    raise AskError(sentence)


def _sentence(error: Any) -> str:
    if not isinstance(error, dict):
        return bounded(error)
    facts = ", ".join(str(error[name]) for name in ("stage", "code") if error.get(name))
    message = str(error.get("message") or "The gateway gave no reason.")
    return f"{message} ({facts})" if facts else message


def _explain(error: Exception, url: str, begun: bool) -> AskError:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return AskError(
            f"No gateway answers at {url}: start one with `make run`, or name another with --url.", UNREACHABLE
        )
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return AskError(f"{bounded(url)} is no address of a gateway: write it like {DEFAULT_URL}.", UNREACHABLE)
    if isinstance(error, httpx.ReadTimeout):
        return AskError(f"The gateway was silent for {_SILENCE_SECONDS:.0f} s.")
    return AskError("The connection broke " + ("in the middle of the answer." if begun else "before the answer began."))


# --- the terminal -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Palette:
    """Paints text for a terminal, or leaves it alone."""

    colour: bool

    @classmethod
    def of(cls, stream: TextIO) -> Palette:
        """Return colours for a terminal unless ``NO_COLOR`` is set."""
        return cls(stream.isatty() and not os.environ.get("NO_COLOR"))

    def paint(self, code: str, text: str) -> str:
        """Wrap ``text`` in an ANSI code such as ``2`` (dim) or ``36`` (cyan)."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


def printable(text: str) -> str:
    """Drop control characters, so that no answer or document can steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))


def cells(text: str) -> int:
    """Count the columns that ``text`` takes; East Asian wide characters take two."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def fit(text: str, width: int) -> str:
    """Pad ``text`` to ``width`` columns, or cut it to that width with an ellipsis."""
    text = printable(text).replace("\n", " ").replace("\t", " ")
    if cells(text) > width:
        while cells(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - cells(text))


def footer(answer: Answer, palette: Palette) -> list[str]:
    """Return the lines under an answer: sources, stage times, and one line of figures."""
    return [*_sources(answer, palette), *_times(answer, palette), "", _figures(answer), *_remarks(answer, palette)]


def _sources(answer: Answer, palette: Palette) -> list[str]:
    cited: dict[int, dict[str, Any]] = {}
    for citation in answer.baton.get("citations") or ():
        cited.setdefault(citation["mark"], citation)
    if not cited:
        return []
    names = [_origin(citation) for citation in cited.values()]
    width = min(_SOURCE_CELLS, max(cells(printable(name)) for name in names))
    return ["", palette.paint("1", "Sources"), *(_source(cited[mark], width, palette) for mark in sorted(cited))]


def _origin(citation: dict[str, Any]) -> str:
    return str(citation.get("source") or citation.get("id", ""))


def _source(citation: dict[str, Any], width: int, palette: Palette) -> str:
    mark = palette.paint("36", f"[{citation['mark']}]".rjust(5))
    collection = palette.paint("2", fit(str(citation.get("collection", "")), 12))
    return f"{mark} {fit(_origin(citation), width)}  {collection} {float(citation.get('score', 0)):7.3f}"


def _times(answer: Answer, palette: Palette) -> list[str]:
    stages: dict[str, float] = answer.baton.get("stages") or {}
    # The gateway's own sums would stand beside the times as this process saw them, under nearly the same names.
    others = [name for name in stages if name not in (*STAGES, *_SUMS)]
    order = [name for name in STAGES if name in stages] + others
    rows = [(name, float(stages[name]), "36") for name in order]
    if answer.first_token is not None:
        rows.append(("first token", answer.first_token, "2"))
    rows.append(("total", answer.total, "2"))
    longest = max(milliseconds for _, milliseconds, _ in rows) or 1.0
    return ["", palette.paint("1", "Stage times"), *(_time(row, longest, palette) for row in rows)]


def _time(row: tuple[str, float, str], longest: float, palette: Palette) -> str:
    name, milliseconds, code = row
    bar = "▇" * max(1, round(_BAR_CELLS * milliseconds / longest))
    return f"  {fit(name, 14)} {milliseconds:>10,.1f} ms  {palette.paint(code, bar)}"


def _figures(answer: Answer) -> str:
    facts = [
        f"{name} {answer.baton[name]:.2f}" for name in ("confidence", "grounding") if answer.baton.get(name) is not None
    ]
    if usage := answer.usage:
        facts.append(f"{usage.get('prompt_tokens', 0)} tokens in, {usage.get('completion_tokens', 0)} out")
    if answer.finish_reason:
        facts.append(f"finished: {answer.finish_reason}")
    return " · ".join(facts)


def _remarks(answer: Answer, palette: Palette) -> list[str]:
    remarks = []
    for note in answer.baton.get("guardrail") or ():
        if note.get("action") in ("flag", "redact", "block"):
            categories = ", ".join(sorted(note.get("categories") or {}))
            remarks.append(f"guardrail: {note['action']} in the {note.get('direction', 'text')} ({categories})")
    if invented := [str(found.get("number")) for found in answer.baton.get("unsupported_numbers") or ()]:
        remarks.append(f"numbers that stand in no passage: {', '.join(dict.fromkeys(invented))}")
    if (answer.baton.get("flags") or {}).get("without_context"):
        remarks.append("answered without passages: the collection holds nothing that fits")
    return [palette.paint("33", printable(remark)) for remark in remarks]


# --- the command ------------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> tuple[Question, bool]:
    """Read the command line; returns the question and whether JSON is wanted. Wrong usage exits with code 2."""
    parser = argparse.ArgumentParser(
        prog="ask", description="Ask the gateway a question and see where the answer comes from."
    )
    parser.add_argument("question", help="the question, in quotes")
    parser.add_argument("--url", type=gateway, default=DEFAULT_URL, help="the gateway (default: %(default)s)")
    parser.add_argument("--collection", default="", help="collection to retrieve from")
    parser.add_argument("--profile", default="", help="profile to ask under")
    parser.add_argument("--no-retrieval", action="store_true", help="answer without passages")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object at the end instead of streaming text"
    )
    options = parser.parse_args(arguments)
    if not options.question.strip():
        parser.error('the question is empty: write make ask Q="…"')
    if options.no_retrieval and options.collection:
        parser.error("--collection has no effect with --no-retrieval: leave one of them out")
    question = Question(
        *(options.question, options.url, options.collection, options.profile, not options.no_retrieval, api_key())
    )
    return question, options.json


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    question, as_json = parse(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        _run(question, as_json)
    except AskError as error:
        print(printable(error.message), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): say nothing more, not even when Python flushes at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    return ANSWERED


def _run(question: Question, as_json: bool) -> None:
    shown: list[str] = []

    def show(text: str) -> None:
        shown.append(text)
        print(printable(text), end="", flush=True)

    try:
        answer = ask(question, (lambda text: None) if as_json else show)
    finally:
        if shown:
            print(flush=True)
    if as_json:
        print(json.dumps(answer.as_json(), ensure_ascii=False, indent=2), flush=True)
        return
    lines = footer(answer, Palette.of(sys.stdout))
    print("\n".join(lines if shown else ["(empty answer)", *lines]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
