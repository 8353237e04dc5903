"""Mistakes that other charts made: names, text that YAML misreads, missing blocks, what a change sets off, probes."""

import json
import re
import shutil

import pytest
import yaml

from scripts.helm_render import CHART, Refused, Renderer, merged, shape_values
from tests.chart.objects import (
    application,
    cluster_hash,
    environment,
    groups,
    of_kind,
    pod_specs,
    rayservice,
    serve,
)

CPU = shape_values("cpu")
TRICKY = {
    "RAG_TOP_K": "4",
    "DEBUG": "false",
    "LR": "1e-5",
    "SHA": "12e5678",
    "ZIP": "0123",
    "TOKENS": "1000000",
    "EMPTY": "",
    "ANSWER": "no",
    "VERSION": "1.10",
    "COLON": "a: b # not a comment",
    "BRACES": "{{ not.a.template }} ${HOME} %d",
    "QUOTES": 'it\'s "quoted" \\ back',
    "LEAD": "  two spaces and a tab\t",
    "AT": "@at *star &amp !bang |pipe >gt <lt",
    "LINES": "line one\nline two\n",
    "CJK": "模型 é\u0301 \U0001f680",
    "TIME": "12:30:45",
    "DATE": "2024-01-01",
    "OCTAL": "0o17",
    "TILDE": "~",
}


def render(chart, change, base="cpu"):
    return chart.objects(merged(shape_values(base), change))


# --- C01, C02: what a change sets off ---------------------------------------------------------------------------------


def test_a_chart_of_another_version_replaces_no_cluster(tmp_path):
    hashes = set()
    for version in ("9.9.8", "9.9.9"):
        folder = tmp_path / version
        shutil.copytree(CHART, folder)
        text = (folder / "Chart.yaml").read_text()
        text = re.sub(r"(?m)^(version|appVersion): .*", rf"\1: {version}", text)
        (folder / "Chart.yaml").write_text(text)
        objects = Renderer(folder).objects(merged(CPU, {"image": {"tag": "fixed"}}))
        assert rayservice(objects)["metadata"]["labels"]["helm.sh/chart"].endswith(version)
        hashes.add(cluster_hash(objects))
    assert len(hashes) == 1


IN_PLACE = {
    "a guardrail term": {"settings": {"guardrail": {"policies": {"default": {"terms": [{"terms": ["alpha"]}]}}}}},
    "retrieval": {"settings": {"profiles": {"default": {"retrieval": {"topK": 3}}}}},
    "a canary": {
        "settings": {
            "routing": {
                "default": {
                    "sticky": "user",
                    "variants": {"stable": {"weight": 95}, "canary": {"weight": 5, "systemPrompt": "Be bold."}},
                    "rules": [{"when": {"promptTokensBelow": 100}, "variant": "canary"}],
                    "shadow": [{"variant": "canary", "share": 0.1}],
                }
            }
        }
    },
    "replicas of a stage": {"pipeline": {"stages": {"postprocessor": {"options": {"num_replicas": 2}}}}},
    "bounds of a model": {"models": {"smollm2": {"options": {"autoscaling_config": {"max_replicas": 3}}}}},
    "labels": {"commonLabels": {"team": "search"}, "commonAnnotations": {"note": "x"}},
    "budget": {"podDisruptionBudget": {"enabled": True}},
    "ingress": {"gateway": {"ingress": {"enabled": True}}},
}


def code_versions(objects):
    """What Serve hashes: a change restarts every replica of that application."""
    keys = ("import_path", "runtime_env", "args")
    return {found["name"]: json.dumps([found.get(key) for key in keys]) for found in serve(objects)["applications"]}


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_change_in_place_restarts_nothing(chart, name):
    before, after = render(chart, {}), render(chart, IN_PLACE[name])
    assert before != after
    assert cluster_hash(before) == cluster_hash(after)
    assert code_versions(before) == code_versions(after)


def test_a_change_of_the_pipeline_restarts_no_model(chart):
    before, after = render(chart, {}), render(chart, {"pipeline": {"handoff": {"slots": 64}}})
    assert cluster_hash(before) == cluster_hash(after)
    assert code_versions(before)["model-smollm2"] == code_versions(after)["model-smollm2"]
    assert code_versions(before)["pipeline"] != code_versions(after)["pipeline"]


def test_a_change_of_a_model_restarts_no_other_and_not_the_pipeline(chart):
    change = {"models": {"smollm2": {"engine": {"engine_kwargs": {"max_num_seqs": 16}}}}}
    before, after = code_versions(render(chart, {})), code_versions(render(chart, change))
    assert {name for name in before if before[name] != after[name]} == {"model-smollm2"}


def test_a_second_model_leaves_the_first_alone(chart):
    second = {"models": {"second": CPU["models"]["smollm2"]}}
    before, after = render(chart, {}), render(chart, second)
    assert cluster_hash(before) == cluster_hash(after)
    assert application(before, "model-smollm2") == application(after, "model-smollm2")
    assert application(after, "model-second")["route_prefix"] is None


def test_environment_and_image_replace_the_cluster(chart):
    before = render(chart, {})
    for change in ({"env": {"A": "b"}}, {"image": {"tag": "new"}}, {"upgrade": {"drainSeconds": 30}}):
        assert cluster_hash(before) != cluster_hash(render(chart, change))


def test_upgrades_can_be_forbidden_or_go_in_steps(chart):
    assert rayservice(render(chart, {"upgrade": {"type": "None"}}))["spec"]["upgradeStrategy"] == {"type": "None"}
    steps = {
        "autoscaling": {"enabled": True},
        "upgrade": {
            "type": "NewClusterWithIncrementalUpgrade",
            "operatorFeatureGates": ["RayServiceIncrementalUpgrade"],
            "incremental": {"gatewayClassName": "istio"},
        },
    }
    strategy = rayservice(render(chart, steps))["spec"]["upgradeStrategy"]
    assert strategy["clusterUpgradeOptions"]["gatewayClassName"] == "istio"
    assert strategy["clusterUpgradeOptions"]["stepSizePercent"] == 10


# --- C04: names -------------------------------------------------------------------------------------------------------

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize("release", ["a", "a" * 41, "baton", "my-baton-2"])
def test_names_fit(chart, release):
    objects = chart.objects(CPU, name=release)
    name = rayservice(objects)["metadata"]["name"]
    assert len(name) <= 47
    assert LABEL.fullmatch(name)
    for found in objects:
        assert len(found["metadata"]["name"]) <= 63
        assert all(len(str(value)) <= 63 for value in found["metadata"]["labels"].values())
    (job, _) = of_kind(objects, "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert f"http://{name}-serve-svc.ns.svc:8000" in container["command"]


@pytest.mark.parametrize(("release", "word"), [("a" * 47, "47"), ("b" * 53, "47"), ("7b-chat", "DNS-1035")])
def test_names_that_do_not_fit_are_refused(chart, release, word):
    with pytest.raises(Refused, match=word) as refused:
        chart.objects(CPU, name=release)
    assert "fullnameOverride" in str(refused.value)


def test_a_name_with_a_dot_is_refused(chart):
    with pytest.raises(Refused, match="DNS-1035"):
        chart.objects(CPU, name="llm-v1.2")


def test_the_longest_name_leaves_room_for_what_is_behind_it(chart):
    change = {
        "fullnameOverride": "a" * 47,
        "modelCache": {"kind": "claim", "offline": False, "preload": {"enabled": True}},
        "doctor": {"enabled": True},
        "observability": {"when": "always"},
    }
    # A Job's name is a label of its pods.
    assert all(len(found["metadata"]["name"]) <= 63 for found in render(chart, change))


def test_a_full_name_can_be_chosen(chart):
    objects = chart.objects(merged(CPU, {"fullnameOverride": "ask"}), name="b" * 53)
    assert rayservice(objects)["metadata"]["name"] == "ask"


# --- C05: text --------------------------------------------------------------------------------------------------------


def test_text_arrives_as_it_was_written(chart):
    prompt = "- you are: helpful\n  # keep this line\n\ttabbed\n"
    terms = ["yes", "1.0", "null", "a: b", "- dash", "#tag", '"', "'", "\\d+"]
    change = {
        "env": TRICKY,
        "models": {"smollm2": {"env": TRICKY}},
        "runtimeEnv": {"env_vars": TRICKY},
        "settings": {
            "profiles": {"default": {"systemPrompt": prompt}},
            "guardrail": {"policies": {"default": {"terms": [{"terms": terms}]}}},
        },
    }
    objects = render(chart, change)
    for group in groups(objects):
        env = environment(group["template"]["spec"]["containers"][0])
        assert {name: env[name] for name in TRICKY} == TRICKY
    for name in ("model-smollm2", "pipeline"):
        env = application(objects, name)["runtime_env"]["env_vars"]
        assert {key: env[key] for key in TRICKY} == TRICKY
    (gateway, *_) = application(objects, "pipeline")["deployments"]
    live = gateway["user_config"]
    assert live["profiles"]["default"]["systemPrompt"] == prompt
    assert live["guardrail"]["policies"]["default"]["terms"][0]["terms"] == terms


def test_a_models_environment_comes_before_the_common_one(chart):
    change = {"runtimeEnv": {"env_vars": {"A": "common", "B": "b"}}, "models": {"smollm2": {"env": {"A": ""}}}}
    env = application(render(chart, change), "model-smollm2")["runtime_env"]["env_vars"]
    assert (env["A"], env["B"]) == ("", "b")


def test_large_whole_numbers_stay_whole(chart):
    change = {
        "settings": {"limits": {"maxBodyBytes": 104857600}},
        "models": {"smollm2": {"options": {"ray_actor_options": {"memory": 8589934592}}}},
    }
    text = rayservice(render(chart, change))["spec"]["serveConfigV2"]
    assert '"maxBodyBytes": 104857600' in text
    assert '"memory": 8589934592' in text


# --- C07: missing blocks, pull secrets, namespaces --------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(yaml.safe_load((CHART / "values.yaml").read_text())))
def test_a_block_set_to_null_is_the_default(chart, key):
    assert rayservice(chart.objects({key: None})) == rayservice(chart.objects({}))


@pytest.mark.parametrize("place", ["head", "autoscaling", "index", "upgrade"])
def test_keys_set_to_null_are_the_defaults(chart, place):
    keys = yaml.safe_load((CHART / "values.yaml").read_text())[place]
    assert rayservice(chart.objects({place: dict.fromkeys(keys)})) == rayservice(chart.objects({}))


def test_values_of_an_older_chart_still_render(tmp_path):
    """`--reuse-values` brings none of the keys that a newer chart has."""
    shutil.copytree(CHART, tmp_path / "chart")
    (tmp_path / "chart" / "values.yaml").write_text("{}\n")
    old = Renderer(tmp_path / "chart")
    assert rayservice(old.objects(CPU)) == rayservice(Renderer().objects(CPU))
    assert rayservice(old.objects({})) == rayservice(Renderer().objects({}))


@pytest.mark.parametrize("secrets", [["registry", "other"], [{"name": "registry"}, {"name": "other"}]])
def test_pull_secrets_reach_every_pod(chart, secrets):
    objects = render(chart, {"image": {"pullSecrets": secrets}})
    for spec in pod_specs(objects):
        assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "other"}]


def test_placement_reaches_the_head_and_the_group(chart):
    place = {
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "priorityClassName": "high",
        "runtimeClassName": "nvidia",
        "podLabels": {"tier": "a"},
        "podAnnotations": {"note": "b"},
        "rayLabels": {"zone": "c"},
    }
    change = {"head": place, "workerGroups": [merged(CPU["workerGroups"][0], place)]}
    for group in groups(render(chart, change)):
        spec, metadata = group["template"]["spec"], group["template"]["metadata"]
        for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"):
            assert spec[key] == place[key]
        assert metadata["labels"]["tier"] == "a"
        assert metadata["annotations"] == {"note": "b"}
        assert group["labels"] == {"zone": "c"}


def test_no_namespace_is_fixed(chart):
    text = "\n".join(chart.text(CPU, namespace="other-ns").values())
    found = set(re.findall(r'(?m)^\s*namespace: *"?([^"\s]+)', text)) | set(re.findall(r"-svc\.([a-z-]+)\.svc", text))
    assert found == {"other-ns"}


# --- C08: Redis -------------------------------------------------------------------------------------------------------


def test_fault_tolerance_is_kuberays_own(chart):
    change = {
        "gcsFaultTolerance": {
            "enabled": True,
            "redisAddress": "redis:6379",
            "passwordSecret": {"name": "redis-auth", "key": "password"},
        }
    }
    service = rayservice(render(chart, change))
    options = service["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert options == {
        "redisAddress": "redis:6379",
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis-auth", "key": "password"}}},
    }
    text = yaml.safe_dump(service)
    for word in ("externalStorageNamespace", "ft-enabled", "RAY_REDIS_ADDRESS", "REDIS_PASSWORD", "redis-password"):
        assert word not in text


# --- C16: probes ------------------------------------------------------------------------------------------------------


def test_probes_need_no_program_and_wait_for_no_model(chart):
    assert not re.search(r"\b(wget|curl)\b", yaml.safe_dump(chart.objects(CPU)))
    for group in groups(chart.objects(CPU)):
        (container,) = group["template"]["spec"]["containers"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container[kind]
            assert set(probe) == {"httpGet", "periodSeconds", "timeoutSeconds", "failureThreshold"}
            assert probe["timeoutSeconds"] <= probe["periodSeconds"]
        # Serve's health is asked of workers alone, and only whether they are to be sent requests.
        asked = [container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe")]
        assert asked == [{"path": "/api/healthz", "port": 52365}] * 2
        ready = container["readinessProbe"]["httpGet"]
        head = container["name"] == "ray-head"
        assert ready == ({"path": "/api/healthz", "port": 52365} if head else {"path": "/-/healthz", "port": 8000})


def test_a_slow_start_has_hours(chart):
    annotations = rayservice(chart.objects(CPU))["metadata"]["annotations"]
    assert int(annotations["ray.io/initializing-timeout"]) >= 3600
    unlimited = rayservice(render(chart, {"upgrade": {"initializingTimeoutSeconds": 0}}))["metadata"]
    assert "ray.io/initializing-timeout" not in unlimited.get("annotations", {})


# --- C38: memory ------------------------------------------------------------------------------------------------------


def test_shared_memory_holds_the_object_store(chart):
    for group in groups(chart.objects(CPU)):
        (volume,) = [volume for volume in group["template"]["spec"]["volumes"] if volume["name"] == "shared-mem"]
        assert volume["emptyDir"]["medium"] == "Memory"
        store = int(group["rayStartParams"]["object-store-memory"])
        size = volume["emptyDir"]["sizeLimit"]
        assert store < int(size[:-2]) * {"Mi": 2**20, "Gi": 2**30}[size[-2:]]


# --- C10: replicas ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "first"), [({"min_replicas": 0, "max_replicas": 1}, 1), ({"max_replicas": 1}, 1)])
def test_an_idle_model_may_go(chart, given, first):
    values = merged(CPU, {})
    values["models"]["smollm2"]["options"] = {
        "max_ongoing_requests": 32,
        "autoscaling_config": {**given, "downscale_to_zero_delay_s": 60},
    }
    (deployment,) = application(chart.objects(values), "model-smollm2")["deployments"]
    found = deployment["autoscaling_config"]
    assert (found["min_replicas"], found["initial_replicas"]) == (given.get("min_replicas", 1), first)
    assert found["downscale_to_zero_delay_s"] == 60


# --- C13, C14: engines over several pods, and without a network -------------------------------------------------------


def test_an_engine_may_span_pods_where_it_says_so(chart):
    values = shape_values("h100-multinode")
    values["models"]["llama"]["engine"]["engine_kwargs"] = {"tensor_parallel_size": 8, "max_model_len": 4096}
    values["workerGroups"][0]["gpus"] = 4
    model = application(chart.objects(values), "model-llama")
    assert model["args"]["placement_group_config"]["strategy"] == "PACK"
    assert model["runtime_env"]["env_vars"]["NCCL_SOCKET_IFNAME"] == "eth0"


def test_offline_pods_never_ask_a_hub(chart):
    objects = chart.objects(shape_values("air-gapped"))
    for spec in pod_specs(objects):
        env = environment(spec["containers"][0])
        assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == "1"
    (policy,) = of_kind(objects, "NetworkPolicy")
    assert len(policy["spec"]["egress"]) == 2  # the release itself and DNS
    mirrored = render(chart, {"modelCache": {"offline": False, "mirror": "http://mirror"}})
    assert environment(groups(mirrored)[0]["template"]["spec"]["containers"][0])["HF_ENDPOINT"] == "http://mirror"
    for shape, local in (("air-gapped", True), ("single-gpu", False)):
        served = application(chart.objects(shape_values(shape)), "pipeline")["args"]["models"]["llama"]
        assert served["localFilesOnly"] is local
