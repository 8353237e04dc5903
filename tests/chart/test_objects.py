"""What stands around the Ray cluster."""

import json
import re

import pytest
import yaml

from scripts.helm_render import merged, shape_values
from tests.chart.objects import application, environment, groups, of_kind, pod_specs, rayservice

CPU = shape_values("cpu")


def render(chart, change):
    return chart.objects(merged(CPU, change))


def test_an_ingress_with_tls(chart):
    change = {"enabled": True, "host": "ask.example.org", "tlsSecret": "cert", "className": "nginx"}
    (ingress,) = of_kind(render(chart, {"gateway": {"ingress": change}}), "Ingress")
    assert ingress["spec"]["tls"] == [{"hosts": ["ask.example.org"], "secretName": "cert"}]
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "ask.example.org"
    assert rule["http"]["paths"][0]["backend"]["service"] == {"name": "baton-serve-svc", "port": {"number": 8000}}


def test_a_route_over_a_gateway_of_its_own(chart):
    route = {"enabled": True, "hostnames": ["ask.example.org"]}
    own = {"gateway": {"create": True, "className": "traefik", "tlsSecret": "cert"}}
    objects = render(chart, {"gateway": {"httpRoute": {**route, **own}}})
    (found,) = of_kind(objects, "HTTPRoute")
    (gateway,) = of_kind(objects, "Gateway")
    assert found["spec"]["parentRefs"] == [{"name": gateway["metadata"]["name"]}]
    assert found["spec"]["rules"][0]["timeouts"] == {"request": "600s"}
    assert gateway["spec"]["listeners"][0]["tls"]["certificateRefs"] == [{"name": "cert"}]


def test_a_route_over_a_gateway_that_is_there(chart):
    refs = [{"name": "public", "namespace": "gateways"}]
    objects = render(chart, {"gateway": {"httpRoute": {"enabled": True, "parentRefs": refs}}})
    assert of_kind(objects, "Gateway") == []
    assert of_kind(objects, "HTTPRoute")[0]["spec"]["parentRefs"] == refs


def test_a_load_balancer(chart):
    service = {"type": "LoadBalancer", "annotations": {"cloud": "internal"}}
    spec = rayservice(render(chart, {"gateway": {"service": service}}))["spec"]
    assert spec["serveService"] == {
        "metadata": {"annotations": {"cloud": "internal"}},
        "spec": {"type": "LoadBalancer"},
    }


def test_budgets_keep_the_head_and_most_of_each_group(chart):
    budgets = of_kind(render(chart, {"podDisruptionBudget": {"enabled": True}}), "PodDisruptionBudget")
    # In `maxUnavailable` they would stop every eviction: a RayCluster does not tell Kubernetes its scale.
    assert all(set(budget["spec"]) == {"minAvailable", "selector"} for budget in budgets)
    assert [(b["metadata"]["name"], b["spec"]["minAvailable"]) for b in budgets] == [
        ("baton-head", 1),
        ("baton-cpu-workers", 0),
    ]
    for budget, group in zip(budgets, groups(render(chart, {})), strict=True):
        assert budget["spec"]["selector"]["matchLabels"].items() <= group["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize(("autoscaling", "unavailable", "least"), [(True, 1, 3), (False, 1, 7), (True, 9, 0)])
def test_a_budget_counts_from_the_fewest_pods(chart, autoscaling, unavailable, least):
    values = merged(shape_values("ha"), {"autoscaling": {"enabled": autoscaling}})
    values["podDisruptionBudget"]["maxUnavailable"] = unavailable
    values["workerGroups"][0] |= {"replicas": 4, "minReplicas": 2, "maxReplicas": 4, "numOfHosts": 2}
    budgets = of_kind(chart.objects(values), "PodDisruptionBudget")
    assert [b["spec"]["minAvailable"] for b in budgets if b["metadata"]["name"] == "baton-gpu-workers"] == [least]


def test_a_head_that_may_be_lost_has_no_budget(chart):
    budgets = of_kind(chart.objects(shape_values("ha")), "PodDisruptionBudget")
    assert {budget["metadata"]["name"] for budget in budgets} == {"baton-gpu-workers", "baton-cpu-workers"}


def test_a_policy_lets_in_the_release_the_operator_and_who_is_named(chart):
    people = [{"namespaceSelector": {"matchLabels": {"team": "search"}}}]
    change = {"networkPolicy": {"enabled": True, "egress": True, "gatewayFrom": people, "metricsFrom": people}}
    (policy,) = of_kind(render(chart, change), "NetworkPolicy")
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    release, operator, gateway, metrics = policy["spec"]["ingress"]
    assert "ports" not in release
    assert operator["ports"] == [{"port": 8265}, {"port": 8000}]
    assert gateway == {"ports": [{"port": 8000}], "from": people}
    assert metrics == {"ports": [{"port": 8080}], "from": people}
    # Nothing but the release and DNS: not the hub, not the internet.
    assert len(policy["spec"]["egress"]) == 2
    labels = policy["spec"]["podSelector"]["matchLabels"].items()
    for group in groups(render(chart, change)):
        assert labels <= group["template"]["metadata"]["labels"].items()


def test_a_redis_of_its_own(chart):
    secret = {"name": "redis-auth", "key": "password"}
    change = {"gcsFaultTolerance": {"enabled": True, "passwordSecret": secret, "redis": {"enabled": True}}}
    objects = render(chart, change)
    options = rayservice(objects)["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert options["redisAddress"] == "baton-redis:6379"
    (redis,) = of_kind(objects, "StatefulSet")
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    assert environment(container) == {"REDIS_PASSWORD": {"secretKeyRef": secret}}
    assert "always" in container["command"]


def test_models_are_fetched_beforehand(chart):
    change = {"modelCache": {"kind": "claim", "preload": {"enabled": True, "models": ["a/b", "gpt2"]}}}
    objects = chart.objects(merged(shape_values("single-gpu"), change))
    (job,) = [job for job in of_kind(objects, "Job") if "preload" in job["metadata"]["name"]]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    fetched = ["BAAI/bge-m3", "a/b", "gpt2", "meta-llama/Llama-3.1-8B-Instruct"]
    assert container["command"][2:] == ["app.ops.models", "pull", "--verify", *fetched]
    assert environment(container)["HF_HUB_CACHE"] == "/models/hub"
    assert environment(container)["HF_TOKEN"] == {"secretKeyRef": {"name": "huggingface", "key": "token"}}


def test_what_is_fetched_beforehand_is_what_is_loaded_later(chart):
    bert = "nlptown/bert-base-multilingual-uncased-sentiment"
    stages = {
        "preprocess": {"tokenizer": "o/words"},
        "sentiment": {"backend": {"kind": "vader", "source": "", "localFilesOnly": True}},
        "summary": {"backend": {"kind": "extractive", "source": "o/encoder", "localFilesOnly": True}},
    }
    small = {"options": {"ray_actor_options": {"num_cpus": 0.1}}}
    stages = {name: {**stages.get(name, {}), **small} for name in ("analyze", *stages)}
    loading = {"model_loading_config": {"model_id": "o/llama"}, "engine_kwargs": {"revision": "v2"}}
    change = {
        "modelCache": {"kind": "claim", "preload": {"enabled": True}},
        "applications": {"analyze": {"enabled": True, "stages": stages}},
        "models": {"llama": {"tokenizer": "/models/words", "engine": loading}},
    }
    objects = chart.objects(merged(shape_values("single-gpu"), change))
    (job,) = [job for job in of_kind(objects, "Job") if "preload" in job["metadata"]["name"]]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    fetched = container["command"][5:]
    assert {"o/words", "o/encoder", "BAAI/bge-m3"} < set(fetched)
    assert bert not in fetched
    assert [each for each in fetched if "@" in each] == ["meta-llama/Llama-3.1-8B-Instruct@v2"]


IMAGE_CACHE = {"kind": "image", "image": {"reference": "models:1"}}


@pytest.mark.parametrize(
    ("cache", "source"),
    [
        ({"kind": "claim", "claim": {"existing": "mine"}}, {"persistentVolumeClaim": {"claimName": "mine"}}),
        ({"kind": "claim"}, {"persistentVolumeClaim": {"claimName": "baton-models"}}),
        ({"kind": "hostPath", "hostPath": "/mnt/m"}, {"hostPath": {"path": "/mnt/m", "type": "Directory"}}),
        (
            IMAGE_CACHE,
            {"image": {"reference": "models:1", "pullPolicy": "IfNotPresent"}},
        ),
    ],
)
def test_every_kind_of_model_cache(chart, cache, source):
    for group in groups(render(chart, {"modelCache": cache})):
        spec = group["template"]["spec"]
        (volume,) = [volume for volume in spec["volumes"] if volume["name"] == "models"]
        assert volume == {"name": "models", **source}
        assert "models" in {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize("cache", [{"kind": "claim"}, {"kind": "hostPath", "hostPath": "/m"}, IMAGE_CACHE])
def test_offline_every_pod_finds_the_cache_and_asks_no_hub(chart, cache):
    wanted = {"HF_HUB_CACHE": "/models/hub", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    for group in groups(render(chart, {"modelCache": {**cache, "offline": True, "mirror": ""}})):
        (container,) = group["template"]["spec"]["containers"][:1]
        found = environment(container)
        assert {name: found.get(name) for name in wanted} == wanted
        assert "HF_ENDPOINT" not in found
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "models"]
        assert (mount["mountPath"], mount.get("readOnly", False)) == ("/models", cache["kind"] == "image")


def test_claims_stay_when_asked_to(chart):
    claims = of_kind(
        render(chart, {"index": {"claim": {"keep": True, "storageClass": "fast"}}}), "PersistentVolumeClaim"
    )
    assert claims[0]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claims[0]["spec"]["storageClassName"] == "fast"
    (claim,) = of_kind(render(chart, {}), "PersistentVolumeClaim")
    assert "annotations" not in claim["metadata"]


def test_a_store_elsewhere_mounts_nothing(chart):
    objects = render(chart, {"pipeline": {"store": {"uri": "s3://bucket/index"}}})
    assert of_kind(objects, "PersistentVolumeClaim") == []
    for group in groups(objects):
        assert "baton-index" not in group.get("resources", {})
        assert "index" not in {volume["name"] for volume in group["template"]["spec"]["volumes"]}


def test_the_doctor_gets_the_complete_values(chart):
    objects = render(chart, {"doctor": {"enabled": True}})
    (job,) = [job for job in of_kind(objects, "Job") if job["metadata"]["name"] == "baton-doctor"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    command = "app.ops.doctor --values /etc/baton/values.yaml --namespace ns --release baton"
    assert " ".join(container["command"][2:]) == command
    (values,) = of_kind(objects, "ConfigMap")
    found = yaml.safe_load(values["data"]["values.yaml"])
    assert found["models"]["smollm2"]["contextTokens"] == 8192
    assert found["workerGroups"][0]["gpus"] == 0
    hooks = [found for found in objects if "helm.sh/hook" in found["metadata"].get("annotations", {})]
    assert {found["kind"] for found in hooks} > {"Job", "ConfigMap", "ServiceAccount", "ClusterRole"}


def test_the_doctor_starts_where_what_it_looks_for_is_missing(chart):
    """A pod whose Secret or claim is not there never starts, and the install would wait in vain for its verdict."""
    change = {
        "doctor": {"enabled": True},
        "secretEnv": {"HF_TOKEN": {"name": "huggingface", "key": "token"}},
        "modelCache": {"kind": "claim", "claim": {"existing": "models"}},
    }
    objects = render(chart, change)
    (job,) = [job for job in of_kind(objects, "Job") if job["metadata"]["name"] == "baton-doctor"]
    spec = job["spec"]["template"]["spec"]
    assert {volume["name"] for volume in spec["volumes"]} == {"tmp", "values"}
    assert all("value" in entry for entry in spec["containers"][0]["env"])
    (values,) = of_kind(objects, "ConfigMap")
    assert "HF_TOKEN" in yaml.safe_load(values["data"]["values.yaml"])["secretEnv"]


def test_no_doctor_unless_asked(chart):
    assert not [found for found in render(chart, {}) if "doctor" in found["metadata"]["name"]]


def test_documents_from_a_volume(chart):
    collection = {"path": "/documents", "volume": {"configMap": {"name": "handbook"}}}
    objects = render(chart, {"collections": {"docs": None, "shop": None, "handbook": collection}})
    (job,) = of_kind(objects, "Job")
    spec = job["spec"]["template"]["spec"]
    assert {"name": "documents", "configMap": {"name": "handbook"}} in spec["volumes"]
    assert spec["containers"][0]["command"][-3:] == ["--collection", "handbook", "/documents"]


def test_a_collections_job_runs_again_when_what_it_does_changes(chart):
    def names(change):
        return [job["metadata"]["name"] for job in of_kind(render(chart, change), "Job")]

    assert names({}) == names({"settings": {"limits": {"maxN": 2}}})
    assert names({}) == names({"upgrade": {"drainSeconds": 30}})
    assert names({}) != names({"pipeline": {"chunking": {"sizeTokens": 64}}})


@pytest.mark.parametrize("change", [{"env": {"A": "b"}}, {"image": {"tag": "new"}}, {"security": {"runAsUser": 1001}}])
def test_no_job_is_changed_under_its_name(chart, change):
    """Kubernetes refuses a change of a Job, and with it the upgrade."""
    before = {job["metadata"]["name"]: job["spec"] for job in of_kind(render(chart, {}), "Job")}
    after = {job["metadata"]["name"]: job["spec"] for job in of_kind(render(chart, change), "Job")}
    assert not before.keys() & after.keys()


def test_extra_objects_are_maps_or_templates(chart):
    more = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "baton-x"}, "data": {"a": "b"}},
        "apiVersion: v1\nkind: Secret\nmetadata: {name: '{{ .Release.Name }}-y'}\n",
    ]
    objects = render(chart, {"extraObjects": more})
    assert of_kind(objects, "ConfigMap")[0]["data"] == {"a": "b"}
    assert of_kind(objects, "Secret")[0]["metadata"]["name"] == "baton-y"


def test_rdma_and_hugepages(chart):
    (_, group, _) = groups(chart.objects(shape_values("h100-multinode")))
    (container,) = group["template"]["spec"]["containers"]
    for kind in ("requests", "limits"):
        assert container["resources"][kind]["rdma/hca_shared_devices_a"] == "1"
        assert container["resources"][kind]["hugepages-2Mi"] == "8Gi"
        assert container["resources"][kind]["nvidia.com/gpu"] == "8"
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert group["resources"] == {"accelerator_type:H100": "1"}
    (constraint,) = group["template"]["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "h100-workers"


def test_a_slice_of_a_gpu_counts_as_one(chart):
    (*_, slices) = groups(chart.objects(shape_values("h100-8x")))
    assert slices["resources"]["GPU"] == "1"
    assert slices["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.20gb"] == "1"


def test_the_autoscaler_keeps_to_the_restricted_level(chart):
    cluster = rayservice(render(chart, {"autoscaling": {"enabled": True}}))["spec"]["rayClusterConfig"]
    assert cluster["enableInTreeAutoscaling"] is True
    options = cluster["autoscalerOptions"]
    assert options["version"] == "v2"
    assert options["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert cluster["headGroupSpec"]["template"]["spec"]["automountServiceAccountToken"] is True
    (worker,) = cluster["workerGroupSpecs"]
    assert worker["template"]["spec"]["automountServiceAccountToken"] is False


def test_helm_test_asks_and_reads_the_metrics(chart):
    (pod,) = of_kind(render(chart, {}), "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    command = pod["spec"]["containers"][0]["command"]
    assert "http://baton-metrics.ns.svc:8080/metrics" in command
    assert command[-1] == "--expect-citation"


def test_the_notes_say_what_to_do_next(chart):
    notes = chart.text(CPU)["baton/templates/NOTES.txt"]
    assert "port-forward service/baton-serve-svc 8000" in notes
    assert "helm test baton -n ns" in notes
    assert "wait jobs -l app.kubernetes.io/instance=baton --for=condition=Complete" in notes
    assert "No documents are indexed yet" not in notes
    lost = chart.text(
        merged(CPU, {"index": {"kind": "pod"}, "workerGroups": [{**CPU["workerGroups"][0], "maxReplicas": 1}]})
    )
    assert "WARNING: the index lies on the worker pod's own disk" in lost["baton/templates/NOTES.txt"]
    assert "No model was named" in chart.text({})["baton/templates/NOTES.txt"]


@pytest.mark.parametrize(
    ("change", "address"),
    [
        ({"ingress": {"enabled": True, "host": "a.b", "tlsSecret": "x", "path": "/p/"}}, "https://a.b/p"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["h.x"]}}, "http://h.x"),
        ({"httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}]}}, "http://ADDRESS-OF-THE-GATEWAY"),
        ({}, "http://127.0.0.1:8000"),
    ],
)
def test_the_notes_ask_where_the_gateway_is(chart, change, address):
    values = merged(CPU, {"gateway": change, "test": {"question": 'what\'s "up"?'}})
    notes = chart.text(values)["baton/templates/NOTES.txt"]
    assert f"curl {address}/v1/chat/completions" in notes
    (body,) = re.findall(r"-d '([^']*)'$", notes, re.M)
    assert json.loads(body)["messages"][0]["content"] == 'what\'s "up"?'


def test_a_secret_goes_before_what_the_chart_sets(chart):
    secret = {"name": "paths", "key": "home"}
    for group in groups(render(chart, {"secretEnv": {"HOME": secret}})):
        env = group["template"]["spec"]["containers"][0]["env"]
        assert [entry for entry in env if entry["name"] == "HOME"] == [
            {"name": "HOME", "valueFrom": {"secretKeyRef": secret}}
        ]


def test_a_model_runs_on_the_pods_that_offer_what_it_asks_for(chart):
    values = shape_values("cpu")
    values["workerGroups"].append({**values["workerGroups"][0], "name": "chat-workers", "rayResources": {"chat": 0.5}})
    values["models"]["smollm2"]["engine"]["placement_group_config"] = {"bundles": [{"CPU": 1, "chat": 0.5}]}
    objects = chart.objects(values)
    (_, first, second) = groups(objects)
    assert second["resources"] == {**first["resources"], "chat": "0.5"}
    assert application(objects, "model-smollm2")["args"]["placement_group_config"]["bundles"] == [
        {"CPU": 1, "chat": 0.5}
    ]


def test_a_name_that_yaml_reads_as_something_else_stays_a_name(chart):
    values = merged(CPU, {"fullnameOverride": "no", "nameOverride": "7", "serviceAccount": {"name": "true"}})
    values["workerGroups"][0]["name"] = "on"
    objects = chart.objects(values, name="1e3", namespace="null")
    for found in objects:
        metadata = found["metadata"]
        assert metadata["name"].startswith("no") or metadata["name"] == "true"
        assert metadata["namespace"] == "null"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "1e3"
    (_, group) = groups(objects)
    assert group["groupName"] == "on"
    assert group["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == "on"
    for spec in pod_specs(objects):
        assert spec["serviceAccountName"] == "true"
