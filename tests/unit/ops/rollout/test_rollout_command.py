"""The command, as people type it, against servers that stand in for cluster, Prometheus and dashboard."""

import json

import pytest
import yaml

from app.ops.rollout.__main__ import main
from tests.unit.ops.rollout.fakes import plan
from tests.unit.ops.rollout.sites import SERVE, Dashboard, PrometheusSite, serve_config
from tests.unit.ops.serving import serving

RELEASE = ["--namespace", "ns", "--name", "baton"]
BLUE_GREEN = {"old": "model-a", "new": "model-b", "watchSeconds": 30}


@pytest.fixture
def numbers():
    """What Prometheus answers: requests, errors, anything else."""
    found = {"increase": 500, "failed": 0.0, "else": 100.0}

    def answer(query):
        return next((value for part, value in found.items() if part in query), found["else"])

    site = PrometheusSite(answer)
    with serving(site.server()) as server:
        found["url"] = f"http://127.0.0.1:{server.server_port}"
        found["site"] = site
        yield found


@pytest.fixture
def write(tmp_path):
    """Write a plan and return its path."""

    def written(**changes):
        path = tmp_path / "plan.yaml"
        raw = plan(**changes).model_dump(mode="json", by_alias=True, exclude_none=True)
        path.write_text(yaml.safe_dump(raw))
        return str(path)

    return written


def run(command, path, numbers, *more):
    return main([command, "--plan", path, *RELEASE, "--prometheus-url", numbers["url"], *more])


def test_a_canary_is_promoted_and_the_values_to_commit_are_told(kube, numbers, write, quick, capsys):
    assert run("run", write(), numbers) == 0
    assert kube.weights == {"old": 0.0, "new": 1.0}
    said = capsys.readouterr().out
    assert "CanaryPromoted: new has all the traffic of chat" in said
    shown = yaml.safe_load(said.split("back:\n\n")[1])
    assert shown["settings"]["routing"]["chat"]["variants"] == {"old": {"weight": 0.0}, "new": {"weight": 1.0}}
    assert [event["reason"] for event in kube.events] == ["CanaryStarted", "CanaryStep", "CanaryStep", "CanaryPromoted"]
    assert any('namespace="ns",job="baton-metrics"' in query for query, _ in numbers["site"].queries)

    assert main(["status", *RELEASE]) == 0
    assert "v2: promoted; chat: old → new" in capsys.readouterr().out
    assert run("run", write(), numbers) == 0
    assert "--again begins it anew" in capsys.readouterr().out


def test_a_bad_canary_is_rolled_back(kube, numbers, write, quick, capsys):
    numbers["failed"] = 0.4
    assert run("run", write(), numbers) == 1
    assert kube.weights == {"old": 1.0, "new": 0.0}
    assert "CanaryRolledBack: errors is broken at a share of 10 %: 0.4" in capsys.readouterr().out
    assert kube.events[-1]["type"] == "Warning"


def test_a_dry_run_shows_queries_and_values_and_changes_nothing(kube, numbers, write, capsys):
    before = json.dumps(kube.objects)
    pauses = [{"name": "freeze", "query": "vector(1) + 0 * up{{selector}}", "bound": 0}]
    assert run("run", write(pauseWhile=pauses), numbers, "--dry-run") == 0
    assert json.dumps(kube.objects) == before
    said = capsys.readouterr().out
    assert "1. old 0.9, new 0.1 (10 %); at least 60 s, judged" in said
    assert "errors: at most 0.02, from 20 requests on; now 0" in said
    assert "compared with 100 of old" in said
    assert 'variant="new"' in said
    assert "freeze: at most 0; now 100" in said
    assert all(method == "GET" for method, _ in kube.requests)
    numbers["url"] = "http://127.0.0.1:1"
    assert run("run", write(), numbers, "--dry-run") == 0
    assert "unknown: http://127.0.0.1:1 does not answer" in capsys.readouterr().out


def test_a_dry_run_warns_of_gates_that_nobody_can_judge(kube, numbers, write, capsys):
    gates = [{"gate": "errors", "bound": 0.02}, {"gate": "grounded", "bound": 0.9}]
    pauses = [{"name": "freeze", "query": "freeze_total", "bound": 0}]
    path = write(gates=gates, pauseWhile=pauses)
    assert run("run", path, numbers, "--dry-run") == 0
    assert "warning" not in capsys.readouterr().out
    numbers |= {"grounding_count": 3, "increase": 500, "freeze_total": []}
    numbers["site"].answer = lambda query: next(
        numbers[part]
        for part in ("grounding_count", "freeze_total", "increase", "failed", "else")
        if part in query + "else"
    )
    assert run("run", path, numbers, "--dry-run") == 0
    said = capsys.readouterr().out
    assert "warning: grounded cannot be judged now: there are 6 of at least 20 judged answers of old and new" in said
    assert "warning: freeze cannot be told now: no number for new. No step begins while that lasts." in said
    assert "warning: errors" not in said
    numbers["url"] = "http://127.0.0.1:1"
    assert run("run", path, numbers, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.count("cannot be judged now: http://127.0.0.1:1 does not answer") == 2
    assert "after 120 s all goes back" in said


def test_an_abort_from_elsewhere(kube, numbers, write, quick, capsys):
    codes = []
    quick.script = [lambda: None, lambda: codes.append(main(["abort", *RELEASE]))]
    assert run("run", write(), numbers) == 1
    assert codes == [0]
    assert kube.weights == {"old": 1.0, "new": 0.0}
    assert kube.events[-1]["reason"] == "CanaryAborted"
    assert main(["abort", *RELEASE]) == 2
    assert "nothing to abort" in capsys.readouterr().err


def test_somebody_elses_weights_hold_it(kube, numbers, write, quick, capsys):
    quick.script = [lambda: None, lambda: kube.change(serve_config(weights=(0.5, 0.5)))]
    assert run("run", write(), numbers) == 3
    assert "Somebody else changed what the rollout v2 moves" in capsys.readouterr().err
    assert kube.weights == {"old": 0.5, "new": 0.5}


def test_variants_that_go_away_hold_it_and_can_be_forgotten(kube, numbers, write, quick, capsys):
    gone = serve_config()
    del gone["applications"][2]["deployments"][0]["user_config"]["routing"]["chat"]["variants"]["new"]
    quick.script = [lambda: None, lambda: kube.change(gone)]
    assert run("run", write(), numbers) == 3
    assert "v2 cannot go on: settings.routing.chat.variants has no 'new'" in capsys.readouterr().err
    assert main(["abort", *RELEASE]) == 2
    assert "remove the annotation baton/rollout of the RayService baton" in capsys.readouterr().err


def test_a_runner_that_may_make_no_events_goes_on(kube, numbers, write, quick, capsys):
    kube.refuse["POST", "/api/v1/namespaces/ns/events"] = 403
    assert run("run", write(), numbers) == 0
    assert "no event was made of it: This account may not touch an Event" in capsys.readouterr().out


def test_nothing_is_known_before_the_first_rollout(kube, capsys):
    assert main(["status", *RELEASE]) == 0
    assert "no rollout was ever begun here" in capsys.readouterr().out
    assert main(["abort", *RELEASE]) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", *RELEASE], "--prometheus-url is missing"),
        (["run", *RELEASE, "--prometheus-url", "p:9090"], "must begin with http:// or https://"),
        (["blue-green", *RELEASE, "--prometheus-url", "http://p"], "is run by `run`"),
    ],
)
def test_what_is_missing_is_said(kube, write, capsys, arguments, told):
    assert main([*arguments, "--plan", write()]) == 2
    assert told in capsys.readouterr().err


def test_bad_plans_and_places_are_bad_input(kube, tmp_path, numbers, capsys):
    assert run("run", str(tmp_path / "none.yaml"), numbers) == 2
    (tmp_path / "plan.yaml").write_text("name: [")
    assert run("run", str(tmp_path / "plan.yaml"), numbers) == 2
    (tmp_path / "plan.yaml").write_text("")
    assert run("run", str(tmp_path / "plan.yaml"), numbers) == 2
    assert "is empty: copy config/rollout.yaml" in capsys.readouterr().err


# --- blue and green ---------------------------------------------------------------------------------------------------


def with_gpus(kube, allocatable, taken, *, gpus=2, old=1, most=2):
    """Give the cluster a node with GPUs, of which the release's own pod has some."""
    config = serve_config(gpus=gpus)
    scaling = config["applications"][0]["deployments"][0]["autoscaling_config"]
    scaling |= {"min_replicas": old, "initial_replicas": old, "max_replicas": most}
    kube.change(config)
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": str(allocatable)}}}
    pod = {
        "metadata": {"labels": {"ray.io/cluster": "c-1"}},
        "spec": {"nodeName": "n", "containers": [{"resources": {"requests": {"nvidia.com/gpu": str(taken)}}}]},
        "status": {"phase": "Running"},
    }
    kube.replicas(a=["RUNNING"] * old, b=[])
    kube.objects["/api/v1/nodes"] = {"metadata": {}, "items": [node]}
    kube.objects["/api/v1/pods"] = {"metadata": {}, "items": [pod]}


def scalings(kube):
    return [found["deployments"][0]["autoscaling_config"]["min_replicas"] for found in kube.config["applications"][:2]]


def test_blue_and_green_with_spare_gpus(kube, numbers, write, quick, capsys):
    with_gpus(kube, allocatable=4, taken=2)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 0
    assert scalings(kube) == [0, 1]
    assert kube.weights == {"old": 0.0, "new": 1.0}
    said = yaml.safe_load(capsys.readouterr().out.split("back:\n\n")[1])
    assert said["models"]["a"]["options"]["autoscaling_config"]["min_replicas"] == 0
    assert said["models"]["b"]["options"]["autoscaling_config"]["max_replicas"] == 2


def test_gpus_that_a_pod_has_and_no_replica_takes_are_free(kube, numbers, write, quick):
    with_gpus(kube, allocatable=4, taken=4)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers, "--dry-run") == 0


def test_blue_and_green_without_spare_gpus_is_refused_with_the_numbers(kube, numbers, write, capsys):
    with_gpus(kube, allocatable=3, taken=2)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 2
    assert "model-b needs 2 GPUs (1 replicas of 2), and 1 are free" in capsys.readouterr().err
    with_gpus(kube, allocatable=2, taken=2)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers, "--in-place") == 2
    assert "model-a has one replica with 2 GPUs, and one has to stay: 2 more GPUs" in capsys.readouterr().err
    assert scalings(kube) == [1, 0]


def test_in_place_needs_no_spare_gpus(kube, numbers, write, quick):
    with_gpus(kube, allocatable=4, taken=4, old=2)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers, "--in-place") == 0
    assert scalings(kube) == [0, 2]


def old_replicas(kube, monkeypatch):
    """Record the replicas that the old application is told to have, in the order in which it is."""
    found = []
    change = kube.answer

    def answer(method, path, body, kind):
        answered = change(method, path, body, kind)
        if method == "PATCH":
            found.append(scalings(kube))
        return answered

    monkeypatch.setattr(kube, "answer", answer)
    return found


def test_the_old_application_keeps_the_replicas_that_it_runs_with(kube, numbers, write, quick, monkeypatch):
    with_gpus(kube, allocatable=14, taken=8, most=5)
    kube.replicas(a=["RUNNING", "RUNNING", "STARTING", "RUNNING", "STOPPING"], b=[])
    numbers["failed"] = 0.4
    told = old_replicas(kube, monkeypatch)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 1
    assert told[:-1] == [[3, 3]] * (len(told) - 1)
    back = kube.config["applications"][0]["deployments"][0]["autoscaling_config"]
    assert back == {"min_replicas": 1, "max_replicas": 5, "initial_replicas": 3}, "it goes on with what it has"
    numbers["failed"] = 0
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers, "--again") == 0
    new = kube.config["applications"][1]["deployments"][0]["autoscaling_config"]
    assert new == {"min_replicas": 1, "max_replicas": 5, "initial_replicas": 3}


def test_gpus_of_replicas_that_the_load_brought_are_not_free(kube, numbers, write, capsys):
    with_gpus(kube, allocatable=6, taken=6, most=3)
    kube.replicas(a=["RUNNING"] * 3, b=[])
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 2
    assert "model-b needs 6 GPUs (3 replicas of 2), and 0 are free" in capsys.readouterr().err
    assert run("blue-green", write(blueGreen=BLUE_GREEN | {"replicas": 1}), numbers) == 2
    assert "model-b needs 2 GPUs (1 replicas of 2), and 0 are free" in capsys.readouterr().err


def test_in_place_exchanges_the_replicas_that_run(kube, numbers, write, quick, monkeypatch):
    with_gpus(kube, allocatable=6, taken=6, most=3)
    kube.replicas(a=["RUNNING"] * 3, b=[])
    told = old_replicas(kube, monkeypatch)
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers, "--in-place") == 0
    assert told[0] == [3, 0]
    assert [2, 1] in told
    assert told[-1] == [0, 1]
    assert kube.config["applications"][1]["deployments"][0]["autoscaling_config"]["initial_replicas"] == 3


def test_where_serve_does_not_tell_its_replicas_nothing_is_begun(kube, numbers, write, capsys):
    with_gpus(kube, allocatable=4, taken=2)
    kube.objects[SERVE] = {"status": "Failure"}
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 3
    assert "No Serve answered" in capsys.readouterr().err
    kube.refuse["GET", SERVE] = 403
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 2
    assert "may not touch baton-head-svc:8265 through the API (get of services/proxy)" in capsys.readouterr().err
    assert scalings(kube) == [1, 0]


def test_a_fixed_number_of_replicas_cannot_stop(kube, numbers, write, capsys):
    kube.change(serve_config(scaling={"autoscaling_config": None, "num_replicas": 1}))
    assert run("blue-green", write(blueGreen=BLUE_GREEN), numbers) == 2
    assert "model-a has a fixed num_replicas" in capsys.readouterr().err


# --- on this machine --------------------------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path):
    """A pipeline on this machine, and the options that lead to it."""
    dashboard = Dashboard()
    with serving(dashboard.server()) as server:
        dashboard.options = ["--local", "--data", str(tmp_path / "data")]
        dashboard.options += ["--dashboard-port", str(server.server_port)]
        yield dashboard


def local_run(local, path, numbers, *more):
    return main(["run", "--plan", path, *local.options, "--prometheus-url", numbers["url"], *more])


def test_a_local_canary_is_promoted(local, numbers, write, quick, capsys):
    before = local.body()
    assert local_run(local, write(), numbers) == 0
    weights = [
        found["applications"][2]["deployments"][0]["user_config"]["routing"]["chat"]["variants"]["new"]["weight"]
        for found in local.puts
    ]
    assert weights == [0.1, 0.5, 1.0]
    assert local.puts[0]["logging_config"] == {"encoding": "JSON"}
    assert local.puts[0]["http_options"] == before["http_options"]
    assert "make apply" in capsys.readouterr().out
    assert main(["status", *local.options]) == 0
    assert "v2: promoted" in capsys.readouterr().out


def test_a_local_canary_is_rolled_back_and_its_record_goes_on(local, numbers, write, quick, capsys):
    numbers["failed"] = 0.4
    assert local_run(local, write(), numbers) == 1
    assert local_run(local, write(), numbers) == 1
    numbers["failed"] = 0
    assert local_run(local, write(), numbers, "--again") == 0


def test_a_local_abort_from_elsewhere(local, numbers, write, quick):
    quick.script = [lambda: None, lambda: main(["abort", *local.options])]
    assert local_run(local, write(), numbers) == 1
    assert main(["abort", *local.options]) == 2


def test_a_second_local_runner_is_refused(local, numbers, write, quick, capsys):
    codes = []
    quick.script = [lambda: codes.append(local_run(local, write(), numbers))]
    assert local_run(local, write(), numbers) == 0
    assert codes == [3]
    assert "Another runner has this rollout" in capsys.readouterr().err


def test_what_only_a_prometheus_tells_needs_one(local, write, capsys):
    path = write(gates=[{"name": "own", "query": "up", "bound": 1}])
    assert main(["run", "--plan", path, *local.options]) == 2
    assert "own is a query, which only a Prometheus answers" in capsys.readouterr().err
    assert main(["blue-green", "--plan", write(blueGreen=BLUE_GREEN), *local.options]) == 2
    assert "knows releases on Kubernetes only" in capsys.readouterr().err


def test_an_application_that_serve_tells_nothing_of_is_not_removed(local, numbers, write, quick):
    whole = local.body

    def forgetful():
        found = whole()
        del found["applications"]["model-b"]["deployed_app_config"]
        return found

    local.body = forgetful
    quick.script = [lambda: setattr(local, "body", whole)]
    assert local_run(local, write(), numbers) == 0
    assert {len(found["applications"]) for found in local.puts} == {3}


def test_no_pipeline_is_said(numbers, write, quick, tmp_path, capsys):
    quick.sleep = lambda seconds: setattr(quick, "time", quick.time + 300)
    options = ["--local", "--data", str(tmp_path), "--dashboard-port", "1"]
    assert main(["run", "--plan", write(), *options, "--prometheus-url", numbers["url"]]) == 3
    assert "start it with `make run`" in capsys.readouterr().err
