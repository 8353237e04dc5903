"""Batches of the chart: off unless asked for, a Job or a RayJob each, and as KubeRay's CRDs want them."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from scripts.helm_render import merged, shape_values
from tests.chart.objects import environment, of_kind, rayservice, serve

KUBERAY = Path(__file__).parent / "kuberay"
VOLUME = {"persistentVolumeClaim": {"claimName": "batches"}}
BATCH = {"input": "/batch/in.jsonl", "output": "/batch/out.parquet", "volume": VOLUME}
SHARED_INDEX = {"index": {"kind": "claim", "claim": {"accessMode": "ReadWriteMany"}}}
DAILY = {"schedule": "0 1 * * *", "output": "/batch/{date}.jsonl"}
GATE = {"upgrade": {"operatorFeatureGates": ["RayCronJob"]}}


def rendered(chart, change=None, **batch):
    values = merged(shape_values("cpu"), SHARED_INDEX)
    return chart.objects(merged(values, {"batch": {"nightly": BATCH | batch}, **(change or {})}))


def only(objects, kind):
    (found,) = [found for found in of_kind(objects, kind) if "-batch-nightly" in found["metadata"]["name"]]
    return found


def faults(kind, spec):
    schema = json.loads((KUBERAY / f"{kind}.json").read_text())
    return [(fault.instance_path, fault.message) for fault in jsonschema_rs.validator_for(schema).iter_errors(spec)]


def test_there_is_none_unless_asked_for(chart):
    objects = chart.objects(shape_values("cpu"))
    assert not [found for found in objects if "batch" in found["metadata"]["name"]]


def test_the_release_s_engine_is_asked_by_a_job(chart):
    job = only(rendered(chart, retryFailed=True, concurrency=4), "Job")
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    command = " ".join(container["command"])
    assert command.startswith("python -m app.ops.batch /batch/in.jsonl /batch/out.parquet --tolerate-failed")
    assert "--priority batch --concurrency 4 --wait-seconds 7200 --url http://baton-serve-svc" in command
    assert command.endswith("--retry-failed")
    assert {"name": "batch", "mountPath": "/batch"} in container["volumeMounts"]
    assert {"name": "batch", **VOLUME} in spec["volumes"]
    assert job["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [2]


def test_on_a_schedule_it_is_a_cron_job(chart):
    found = only(rendered(chart, **DAILY), "CronJob")
    assert (found["spec"]["schedule"], found["spec"]["concurrencyPolicy"]) == ("0 1 * * *", "Forbid")
    assert "/batch/{date}.jsonl" in found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["command"]


def test_another_batch_is_another_job_and_nothing_else_is(chart):
    def name(change=None, **batch):
        return only(rendered(chart, change, **batch), "Job")["metadata"]["name"]

    assert name() == name({"settings": {"limits": {"maxN": 2}}})
    assert name() != name(input="/batch/other.jsonl")


def test_an_engine_of_its_own_is_a_rayjob_that_kuberay_takes(chart):
    objects = rendered(chart, engine="own")
    spec = only(objects, "RayJob")["spec"]
    assert faults("rayjob", spec) == []
    assert spec["entrypoint"].endswith("--engine own --config /etc/baton/batch/serve.json")
    assert spec["shutdownAfterJobFinishes"] is True
    cluster, release = spec["rayClusterSpec"], rayservice(objects)["spec"]["rayClusterConfig"]
    assert [group["groupName"] for group in cluster["workerGroupSpecs"]] == ["cpu-workers"]
    assert cluster["rayVersion"] == release["rayVersion"]
    head = cluster["headGroupSpec"]["template"]
    mounts = {mount["name"]: mount["mountPath"] for mount in head["spec"]["containers"][0]["volumeMounts"]}
    assert (mounts["batch"], mounts["batch-serve"]) == ("/batch", "/etc/baton/batch")
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert group["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "batch"
        # Serve's proxy is there only once the job has begun, and the job begins only once all pods are ready.
        probe = group["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]
        assert probe == {"path": "/api/healthz", "port": 52365}


def test_it_serves_what_the_release_serves_without_the_batches_of_its_api(chart):
    mount = {"volumes": [{"name": "files", **VOLUME}], "volumeMounts": [{"name": "files", "mountPath": "/files"}]}
    change = {
        "settings": {"batches": {"folder": "/files/batches"}},
        "head": mount,
        "workerGroups": [merged(shape_values("cpu")["workerGroups"][0], mount)],
    }
    objects = rendered(chart, change, engine="own")
    (config,) = [found for found in of_kind(objects, "ConfigMap") if found["metadata"]["name"] == "baton-batch-nightly"]
    own, release = json.loads(config["data"]["serve.json"]), serve(objects)
    folders = []
    for found in (release, own):
        (gateway,) = [entry for entry in found["applications"][-1]["deployments"] if entry["name"] == "gateway"]
        folders.append(gateway["user_config"].pop("batches")["folder"])
    assert folders == ["/files/batches", ""]
    assert own == release


def test_an_engine_of_its_own_on_a_schedule_is_a_raycronjob(chart):
    spec = only(rendered(chart, GATE, engine="own", **DAILY), "RayCronJob")["spec"]
    assert faults("raycronjob", spec) == []
    assert spec["schedule"] == "0 1 * * *"
    assert faults("rayjob", spec["jobTemplate"]) == []


@pytest.mark.parametrize("engine", ["shared", "own"])
def test_keys_and_credentials_reach_it(chart, engine):
    secret = {"name": "baton-client", "key": "secret"}
    change = {
        "auth": {"existingSecret": "baton-keys", "clientSecret": secret},
        "settings": {"auth": {"enabled": True}},
        "secretEnv": {"AWS_ACCESS_KEY_ID": {"name": "s3", "key": "id"}},
        "collections": {"docs": None},
    }
    objects = rendered(chart, change, engine=engine, input="s3://rows/in.jsonl", output="s3://rows/out.jsonl")
    if engine == "own":
        spec = only(objects, "RayJob")["spec"]
        template, command = spec["rayClusterSpec"]["headGroupSpec"]["template"], spec["entrypoint"]
    else:
        template = only(objects, "Job")["spec"]["template"]
        command = " ".join(template["spec"]["containers"][0]["command"])
    env = environment(template["spec"]["containers"][0])
    assert env["BATON_API_KEY"] == {"secretKeyRef": secret}
    assert env["AWS_ACCESS_KEY_ID"] == {"secretKeyRef": {"name": "s3", "key": "id"}}
    assert "--progress /batch/nightly-rows_out.jsonl.progress" in command


def test_each_day_s_output_has_a_progress_of_its_own(chart):
    daily = {**DAILY, "input": "s3://rows/{date}.jsonl", "output": "s3://rows/{date}/out.jsonl"}
    spec = only(rendered(chart, {}, **daily), "CronJob")["spec"]["jobTemplate"]["spec"]
    command = " ".join(spec["template"]["spec"]["containers"][0]["command"])
    assert "--progress /batch/nightly-rows_{date}_out.jsonl.progress" in command
