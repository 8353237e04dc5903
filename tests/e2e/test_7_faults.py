"""What breaks comes back without anybody's help (cases C11, C16)."""

import time

import httpx

from tests.e2e.kube import START, get, kill_engines, kubectl, pods, wait_for
from tests.e2e.release import since


def status(release, **body):
    try:
        return release.chat("Say hello.", **body).status_code
    except httpx.HTTPError as error:
        return type(error).__name__


def test_an_engine_that_dies_is_replaced(release):
    before = release.replicas("model-smollm2")
    assert kill_engines() >= 1

    seen, began = [], time.monotonic()
    while since(began) < START:
        seen.append(status(release))
        if seen[-1] == 200 and release.replicas("model-smollm2") != before:
            break
        time.sleep(2)
    assert seen[-1] == 200, seen
    assert set(seen) <= {200, 502, 503}, seen
    assert 503 in seen, seen
    print(f"back after {since(began):.0f} s; statuses {sorted(set(seen), key=str)}")


def test_a_head_that_dies_takes_no_document_with_it(release):
    document = {"documents": [{"id": "zebra", "text": "The zebra note has the code word ZEBRA-77."}]}
    assert release.http.post("/v1/collections/notes/documents", json=document).status_code == 200
    question = {"model": "default", "rag": {"collection": "notes", "return_contexts": True}}
    (head,) = pods(node_type="head")
    kubectl("delete", "pod", head["metadata"]["name"], "--wait=false")

    def came_back():
        found = status(release, **question)
        seen.append(found)
        if not isinstance(found, int):
            release.gateway.renew()
        return found == 200 and [pod["metadata"]["uid"] for pod in pods(node_type="head")] not in (
            [],
            [head["metadata"]["uid"]],
        )

    seen, began = [], time.monotonic()
    wait_for("answers after the head's death", came_back, START, every=3)
    print(f"back after {since(began):.0f} s; statuses {sorted(set(seen), key=str)}")
    assert {found for found in seen if isinstance(found, int)} <= {200, 503}, seen
    answer = release.chat("What is the code word of the zebra note?", **question)
    assert "ZEBRA-77" in answer.json()["baton"]["contexts"][0]["text"]
    release.close()
    release.wait()
    release.open()


def test_no_probe_needs_a_program_of_the_image(release):
    for pod in pods():
        for container in pod["spec"]["containers"]:
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                probe = container.get(kind)
                assert not probe or "wget" not in str(probe.get("exec", "")), (container["name"], kind, probe)
                assert not probe or "curl" not in str(probe.get("exec", "")), (container["name"], kind, probe)
    assert get("endpoints", "baton-serve-svc")["subsets"]
