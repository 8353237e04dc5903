"""The chart's monitors, rules and boards under a real Prometheus operator: targets, an alert that comes and goes."""

import os
import time

import httpx
import pytest

from dashboards.output import BOARDS
from dashboards.pictures import WAIVED, picture
from tests.app.baton import Caller
from tests.dashboards.collect_scrape import VARIANTS, ask_variants, send_batch, traffic
from tests.e2e.kube import CLUSTER, CONTEXT, PODS, START, Forward, kill_engines, pods, run, wait_for
from tests.e2e.release import Callers

VERSION = "v0.85.0"
PUBLIC = f"https://github.com/prometheus-operator/prometheus-operator/releases/download/{VERSION}/bundle.yaml"
BUNDLE = os.environ.get("BATON_PROMETHEUS_OPERATOR", PUBLIC)
IMAGES = (
    f"quay.io/prometheus-operator/prometheus-operator:{VERSION}",
    f"quay.io/prometheus-operator/prometheus-config-reloader:{VERSION}",
    "quay.io/prometheus/prometheus:v3.16.0",
)
MINUTES = 3
#: An alert's slowest way: half a minute until the windows know of it, and the longest `for` of those that are made.
ALERT = 900


def kubectl(*arguments, **options):
    return run("kubectl", "--context", CONTEXT, *arguments, **options)


@pytest.fixture(scope="module")
def prometheus(release):
    """A client of the cluster's Prometheus, with the release's monitors in force."""
    for image in IMAGES:
        if run("docker", "image", "inspect", image, check=False).returncode == 0:
            run("kind", "load", "docker-image", "--name", CLUSTER, image, seconds=300)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", BUNDLE, seconds=180)
    kubectl("wait", "--for=condition=Established", "crd/prometheuses.monitoring.coreos.com", "--timeout=60s")
    kubectl("wait", "deployment/prometheus-operator", "--for=condition=Available", "--timeout=180s", seconds=200)
    kubectl("apply", "-f", "tests/e2e/monitoring/prometheus.yaml")
    release.upgrade({"observability": {"interval": "5s"}}, wait=False)
    forward = Forward("prometheus-operated", 9090, namespace="monitoring")
    with httpx.Client(base_url=forward.url, timeout=60) as client:
        wait_for("a Prometheus that is ready", lambda: _get(client, "/-/ready"), PODS)
        yield client
    forward.close()
    release.upgrade({"observability": {"when": "never"}}, wait=False)
    kubectl("delete", "-f", "tests/e2e/monitoring/prometheus.yaml", seconds=180)
    kubectl("delete", "-f", BUNDLE, seconds=180)


def _get(client, path):
    try:
        return client.get(path).status_code == 200
    except httpx.HTTPError:
        return False


def query(client, expression):
    """Return the rows of an instant query."""
    body = client.get("/api/v1/query", params={"query": expression}).json()
    assert body["status"] == "success", body
    return body["data"]["result"]


def firing(client):
    """Return the names of the alerts that fire."""
    alerts = client.get("/api/v1/alerts").json()["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def test_every_pod_is_a_target_that_is_up(prometheus):
    def all_up():
        found = query(prometheus, 'up{namespace="baton",job="baton-metrics"}')
        return {row["metric"]["pod"] for row in found if row["value"][1] == "1"} == {
            pod["metadata"]["name"] for pod in pods()
        }

    wait_for("every pod as a target that is up", all_up, PODS, every=2)


def test_the_rules_are_in_force_and_evaluate(prometheus):
    groups = [
        group for group in prometheus.get("/api/v1/rules").json()["data"]["groups"] if group["name"].startswith("baton")
    ]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 50
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []


def test_an_alert_fires_when_engines_die_under_a_flood_and_resolves(prometheus, release):
    assert firing(prometheus) & {"BatonAvailabilityBurnsFast", "BatonShedding"} == set()
    release.upgrade({"observability": {"interval": "5s"}, "settings": {"modelCapacity": {"smollm2": 1}}}, wait=False)
    with Callers(lambda: release.chat("Tell a long story.", max_tokens=64), count=6, pause=0.3) as callers:
        wait_for("requests that are shed", lambda: callers.statuses[503] > 10, 120)
        assert kill_engines() >= 1
        wait_for(
            "alerts",
            lambda: {"BatonAvailabilityBurnsFast", "BatonShedding"} <= firing(prometheus),
            ALERT,
            every=5,
        )
    release.upgrade({"observability": {"interval": "5s"}}, wait=False)
    wait_for("an answer", lambda: release.chat("Say hello.").status_code == 200, START, every=2)
    # What was lost counts for the budget's longer windows for hours; the cause itself is over in minutes.
    with Callers(lambda: release.chat("Say hello.", max_tokens=2), pause=0.2):
        wait_for("no shedding", lambda: "BatonShedding" not in firing(prometheus), ALERT, every=5)


def test_every_board_has_something_to_show(prometheus, release, tmp_path):
    settings = {"routing": VARIANTS, "batches": {"folder": "/data/batches"}}
    release.upgrade({"observability": {"interval": "5s"}, "settings": settings}, wait=False)
    caller = Caller(release.gateway.url)
    wait_for("an endpoint for files", lambda: caller.http.get("/v1/files").status_code == 200, START)
    made = send_batch(caller)
    end = time.monotonic() + MINUTES * 60
    while time.monotonic() < end:
        traffic(caller)
        ask_variants(caller)
    assert caller.http.get(made).json()["status"] == "completed"
    caller.http.close()
    now = time.time()
    empty = [query for board in BOARDS for query in picture(prometheus, board.uid, MINUTES + 1, now, tmp_path)]
    assert [query for query in empty if query not in WAIVED] == []
