"""Load brings a replica, the replica brings a worker pod, and both go when the load does."""

from tests.e2e.kube import PODS, START, cluster_name, pods, wait_for
from tests.e2e.release import Callers


def test_a_worker_group_follows_the_load(release):
    before = cluster_name()
    assert len(pods(group="cpu-workers")) == 1
    text = "What does the guardrail do with a question that names a forbidden term? " * 8

    def embed():
        return release.http.post("/v1/embeddings", json={"model": "embedder", "input": [text] * 16})

    with Callers(embed, count=24, pause=0) as callers:
        wait_for("a second worker pod", lambda: len(pods(group="cpu-workers")) == 2, PODS)
        wait_for("a second retriever", lambda: len(release.replicas()["pipeline/retriever"]) == 2, START)
    assert set(callers.statuses) == {200}, (callers.statuses, callers.bodies[:3])

    wait_for("one retriever again", lambda: len(release.replicas()["pipeline/retriever"]) == 1, PODS)
    wait_for("one worker pod again", lambda: len(pods(group="cpu-workers")) == 1, PODS)
    assert cluster_name() == before
    wait_for("an answer", lambda: release.chat("Say hello.").status_code == 200, 60)
