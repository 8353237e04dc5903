"""Sending documents through a gateway: retries, halves, and what is told of refusals."""

import json

import httpx
import pytest

from app.errors import ConfigError, InvalidRequest, StageUnavailable
from app.ingestion.documents import parse_document
from app.ingestion.targets import GatewayTarget
from app.jobs import DocumentResult

DOCUMENTS = [
    parse_document({"id": f"d{n}", "text": "zebra", "title": "T", "metadata": {"n": n}}, "d") for n in range(4)
]


class Gateway:
    """Answers with the given responses in turn, then 200 with the number of documents."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.bodies = []
        self.waits = []

    def __call__(self, request):
        self.bodies.append(json.loads(request.content) if request.content else None)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"name": "c"}]})
        return httpx.Response(200, json={"documents": len(self.bodies[-1]["documents"]), "passages": 9, "unchanged": 0})

    def target(self):
        client = httpx.Client(base_url="http://gateway", transport=httpx.MockTransport(self))
        return GatewayTarget("http://gateway", None, client=client, wait=self.waits.append)


def test_documents_go_as_the_gateway_takes_them():
    gateway = Gateway()
    assert gateway.target().send("c", DOCUMENTS[:1]) == DocumentResult(1, 9, 0)
    assert gateway.bodies == [{"documents": [{"id": "d0", "text": "zebra", "title": "T", "metadata": {"n": 0}}]}]


def test_a_busy_gateway_is_waited_for():
    gateway = Gateway(httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(503))
    assert gateway.target().send("c", DOCUMENTS).documents == 4
    assert gateway.waits == [7.0, 2.0]


def test_waiting_ends():
    gateway = Gateway(*[httpx.Response(503, json={"error": {"message": "full"}})] * 6)
    with pytest.raises(StageUnavailable, match="answered 503: full"):
        gateway.target().send("c", DOCUMENTS)
    assert gateway.waits == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_batch_too_large_goes_in_halves():
    gateway = Gateway(httpx.Response(413))
    assert gateway.target().send("c", DOCUMENTS) == DocumentResult(4, 18, 0)
    assert [len(body["documents"]) for body in gateway.bodies] == [4, 2, 2]


def test_one_document_too_large_is_told():
    gateway = Gateway(httpx.Response(413, json={"error": {"message": "over 4 MiB"}}))
    with pytest.raises(InvalidRequest, match="answered 413: over 4 MiB"):
        gateway.target().send("c", DOCUMENTS[:1])


@pytest.mark.parametrize("body", [{"text": "plain"}, {"json": []}, {"json": {"error": "x"}}])
def test_answers_of_other_shapes_are_told(body):
    with pytest.raises(InvalidRequest, match="answered 403: Forbidden"):
        Gateway(httpx.Response(403, **body)).target().send("c", DOCUMENTS)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(404, text="<h1>Not Found</h1>"), "answered 404"),
        (httpx.Response(501, text="Unsupported method"), "answered 501"),
        (httpx.Response(405, json={"detail": "Method Not Allowed"}), "answered 405"),
        (httpx.Response(200, text="<html>"), "answers in another form"),
        (httpx.Response(200, json=[]), "answers in another form"),
        (httpx.Response(200, json={"documents": 1}), "answers in another form"),
        (httpx.RemoteProtocolError("illegal status line"), "does not speak HTTP"),
    ],
)
def test_what_is_no_baton_is_told(answer, said):
    sentence = f"--url: no Baton answers at http://gateway; what listens there {said}: check host and port"
    with pytest.raises(ConfigError, match=sentence):
        Gateway(answer).target().send("c", DOCUMENTS)


def test_a_refusal_of_batons_stays_one():
    with pytest.raises(InvalidRequest, match="answered 404: There is nothing"):
        Gateway(httpx.Response(404, json={"error": {"message": "There is nothing"}})).target().list_collections()


def test_a_silent_gateway_is_told():
    with pytest.raises(StageUnavailable, match=r"http://gateway does not answer \(ConnectError\)"):
        Gateway(httpx.ConnectError("refused")).target().list_collections()


def test_collections_are_listed():
    assert Gateway().target().list_collections() == [{"name": "c"}]
