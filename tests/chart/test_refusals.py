"""Every wrong value is refused with a sentence that says what to change."""

import pytest

from scripts.helm_render import Refused, merged, shape_values
from tests.chart.wrong_values import (
    CLUSTER,
    MODEL,
    autoscaling,
    gpu_model,
    group,
    model,
    routing,
    with_gpus,
)

WRONG = {
    # --- the schema: unknown keys and wrong types, by path
    "unknown key": ({"replicaCount": 3}, "replicaCount"),
    "unknown key inside": ({"head": {"memory": "4Gi"}}, "/head", "memory"),
    "unknown key of a model": (model(tensorParallel=2), "smollm2", "tensorParallel"),
    "misspelt option": (model(options={"max_ongoing_request": 3}), "max_ongoing_request"),
    "unknown setting": ({"settings": {"guardrial": {}}}, "/settings", "guardrial"),
    "env of a wrong type": ({"env": {"RAG_TOP_K": 4}}, "/env/RAG_TOP_K", "want string"),
    "env of a model of a wrong type": (model(env={"DEBUG": False}), "env/DEBUG", "want string"),
    "env name": ({"env": {"1X": "a"}}, "1X"),
    "quantity": ({"head": {"objectStore": "2 GB"}}, "/head/objectStore"),
    "root": ({"security": {"runAsUser": 0}}, "/security/runAsUser"),
    "upgrade type": ({"upgrade": {"type": "Recreate"}}, "/upgrade/type", "NewCluster"),
    "storage namespace": ({"gcsFaultTolerance": {"externalStorageNamespace": "x"}}, "externalStorageNamespace"),
    "negative replicas": (group(minReplicas=-1), "minReplicas"),
    "group name": (group(name="CPU_workers"), "/workerGroups/0/name"),
    "list for a map": ({"models": []}, "/models"),
    "collection name": ({"collections": {"Docs!": {"path": "/x"}}}, "Docs!"),
    "amount of a resource of one's own": (group(rayResources={"chat": 0}), "rayResources/chat"),
    "label of the chart's own": (
        {"commonLabels": {"helm.sh/chart": "x"}, "head": {"podLabels": {"app.kubernetes.io/name": "x"}}},
        "commonLabels.helm.sh/chart",
        "head.podLabels.app.kubernetes.io/name",
        "leave it out",
    ),
    "label of a group that selects": (
        group(podLabels={"app.kubernetes.io/component": "x"}),
        "workerGroups cpu-workers: podLabels.app.kubernetes.io/component",
    ),
    "label that Kubernetes refuses": ({"commonLabels": {"team": "a b"}}, "/commonLabels/team", "pattern"),
    "label's name that Kubernetes refuses": (group(nodeSelector={"a b": "c"}), "/workerGroups/0/nodeSelector", "a b"),
    "runbook that is no address": ({"observability": {"runbookUrl": "a: b # c"}}, "/observability/runbookUrl"),
    "Redis with the longest name": (
        {
            "fullnameOverride": "a" * 47,
            "gcsFaultTolerance": {
                "enabled": True,
                "passwordSecret": {"name": "a", "key": "b"},
                "redis": {"enabled": True},
            },
        },
        "at most 46",
        "fullnameOverride",
    ),
    "Redis that keeps nothing": (
        {"gcsFaultTolerance": {"redis": {"enabled": True}}},
        "gcsFaultTolerance.redis.enabled",
        "set gcsFaultTolerance.enabled as well",
    ),
    # --- what Kubernetes would refuse, or a node never pull
    "image with its tag": ({"image": {"repository": "baton:1"}}, "/image/repository"),
    "tag that is none": ({"image": {"tag": 'a"b'}}, "/image/tag"),
    "digest that is none": ({"image": {"digest": "latest"}}, "/image/digest", "sha256"),
    "pull secret without a name": ({"image": {"pullSecrets": [{}]}}, "/image/pullSecrets/0", "name"),
    "host with a scheme": ({"gateway": {"ingress": {"enabled": True, "host": "https://a.b"}}}, "/gateway/ingress/host"),
    "mirror that is no address": ({"modelCache": {"mirror": "a mirror"}}, "/modelCache/mirror"),
    "model that is no id": ({"modelCache": {"preload": {"models": ["a b"]}}}, "/modelCache/preload/models/0"),
    "claim of a wrong name": ({"index": {"claim": {"existing": "A B"}}}, "/index/claim/existing"),
    "claim of no size": ({"index": {"claim": {"size": "0Gi"}}}, "/index/claim/size"),
    "documents that are an option": ({"collections": {"docs": {"path": "--help"}}}, "docs/path"),
    # --- options of deployments
    "smoothing_factor": (autoscaling(max_replicas=1, smoothing_factor=0.5), "smoothing_factor", "upscaling_factor"),
    "upscale_smoothing_factor": (autoscaling(upscale_smoothing_factor=0.5), "deprecated", "upscaling_factor"),
    "metrics_interval_s": (
        autoscaling(metrics_interval_s=1),
        "metrics_interval_s",
        "RAY_SERVE_REPLICA_AUTOSCALING_METRIC_PUSH_INTERVAL_S",
    ),
    "max_concurrent_queries": (model(options={"max_concurrent_queries": 3}), "deprecated", "max_ongoing_requests"),
    "deprecated in a stage": (
        {"pipeline": {"stages": {"retriever": {"options": {"autoscaling_config": {"smoothing_factor": 1}}}}}},
        "pipeline.stages.retriever.options.autoscaling_config.smoothing_factor",
    ),
    "both kinds of replicas": (
        model(options={"num_replicas": 2, "autoscaling_config": {"max_replicas": 2}}),
        "num_replicas and autoscaling_config exclude each other",
    ),
    "min over max": (autoscaling(min_replicas=3, max_replicas=2), "min_replicas 3", "max_replicas 2"),
    "initial outside": (autoscaling(min_replicas=1, max_replicas=2, initial_replicas=5), "initial_replicas 5"),
    "target over limit (C10a)": (
        autoscaling(min_replicas=1, max_replicas=1, initial_replicas=1, target_ongoing_requests=16),
        "8 requests at once",
        "target_ongoing_requests is 16",
    ),
    "target over a stage's limit": (
        {"pipeline": {"stages": {"retriever": {"maxOngoingRequests": 2, "options": {"autoscaling_config": {}}}}}},
        "2 requests at once",
        "target_ongoing_requests is 5",
    ),
    "options in the gateway": (
        {"pipeline": {"stages": {"guardrail": {"options": {"num_replicas": 2}}}}},
        "pipeline.stages.guardrail.options",
        "placement: deployment",
    ),
    "limit in options": (
        {"pipeline": {"stages": {"retriever": {"options": {"max_ongoing_requests": 9}}}}},
        "use the key maxOngoingRequests",
    ),
    # --- engines: their own keys, and the types of what the chart reads of them
    "misspelt key of an engine": (model(engine={"engine_kwarg": {}}), "smollm2/engine", "engine_kwarg"),
    "arguments that are a list": (
        model(engine={"engine_kwargs": ["x"]}),
        "engine/engine_kwargs",
        "want object",
    ),
    "arguments that are null": (model(engine={"engine_kwargs": None}), "engine_kwargs", "want object"),
    "window in words": (model(engine={"engine_kwargs": {"max_model_len": "8k"}}), "max_model_len", "integer"),
    "window of the engine's choice": (model(engine={"engine_kwargs": {"max_model_len": -1}}), "want 1"),
    "tensor parallel in words": (model(engine={"engine_kwargs": {"tensor_parallel_size": "two"}}), "integer"),
    "source in place of a block": (model(engine={"model_loading_config": "a/b"}), "model_loading_config", "object"),
    "one bundle in place of a list": (
        model(engine={"placement_group_config": {"bundles": {"CPU": 1}}}),
        "placement_group_config/bundles",
        "array",
    ),
    "unknown strategy": (model(engine={"placement_group_config": {"strategy": "PAK"}}), "strategy", "STRICT_PACK"),
    "list of variables": ({"runtimeEnv": {"env_vars": ["A=b"]}}, "/runtimeEnv/env_vars", "object"),
    "list of an engine's variables": (model(engine={"runtime_env": {"env_vars": ["A=b"]}}), "env_vars", "object"),
    # --- models and profiles
    "no model id": (model(engine={"model_loading_config": {"model_id": None}}), f"{MODEL}.engine", "model_id"),
    "weights in a bucket": (
        model(engine={"model_loading_config": {"model_source": "s3://bucket/model"}}),
        f"{MODEL}.tokenizer",
        "name a folder",
    ),
    "weights in a bucket, as a block": (
        model(engine={"model_loading_config": {"model_source": {"bucket_uri": "s3://bucket/model"}}}),
        "is a bucket",
        f"{MODEL}.tokenizer",
    ),
    "window": (model(contextTokens=16384), "contextTokens is 16384", "8192"),
    "unknown model": ({"settings": {"profiles": {"default": {"model": "gpt"}}}}, "names gpt", "smollm2"),
    "unknown default profile": ({"settings": {"defaultProfile": "best"}}, "names best"),
    "unknown default class": ({"settings": {"defaultPriority": "urgent"}}, "defaultPriority names urgent"),
    "unknown policy": ({"settings": {"profiles": {"plain": {"policy": "strict"}}}}, "policy names strict"),
    "no collection": (
        {"settings": {"profiles": {"plain": {"retrieval": {"enabled": True}}}}},
        "plain.retrieval",
        "collections",
    ),
    "model and profile": ({"settings": {"profiles": {"smollm2": {"model": "smollm2"}}}}, "smollm2", "rename"),
    # --- routing
    "routing of no profile": (routing({"variants": {"a": {"weight": 1}}}, "nope"), "names nope", "settings.profiles"),
    "no weight": (routing({"variants": {"a": {}, "b": {"weight": 0}}}), "weights of all variants are 0"),
    "negative weight": (routing({"variants": {"a": {"weight": -1}}}), "weight"),
    "model of a variant": (routing({"variants": {"a": {"weight": 1, "model": "gpt"}}}), "names gpt", "smollm2"),
    "profile of a variant": (routing({"variants": {"a": {"weight": 1, "profile": "best"}}}), "names best"),
    "name of a variant": (routing({"variants": {"plain": {"weight": 1}}}), "variants.plain", "rename"),
    "shadow of nobody": (
        routing({"variants": {"a": {"weight": 1}}, "shadow": [{"variant": "b"}]}),
        "settings.routing.default.shadow[0].variant names b",
    ),
    "rule for nobody": (
        routing({"variants": {"a": {"weight": 1}}, "rules": [{"when": {"jsonAsked": True}, "variant": "b"}]}),
        "settings.routing.default.rules[0].variant names b",
    ),
    "rule for no model": (
        routing({"rules": [{"when": {"jsonAsked": True}, "model": "gpt"}]}),
        "settings.routing.default.rules[0].model names gpt",
    ),
    "unknown condition": (
        routing({"variants": {"a": {"weight": 1}}, "rules": [{"when": {"color": 1}, "variant": "a"}]}),
        "color",
    ),
    "adapter of no model": ({"settings": {"adapters": {"gpt": ["sql"]}}}, "settings.adapters names gpt"),
    # --- GPUs
    "tensor parallel of three (C13c)": (with_gpus(gpu_model(3)), "tensor_parallel_size is 3", "use 1, 2, 4, 8"),
    "more GPUs than there are": (with_gpus(gpu_model(8, 2), replicas=2), "takes 16 GPUs", "8 at most"),
    "strict pack over pods (C13a)": (
        with_gpus(gpu_model(8, strategy="STRICT_PACK"), replicas=2),
        "STRICT_PACK",
        "a pod has 4",
        "use PACK",
    ),
    "kind of GPU (C13d)": (with_gpus(gpu_model(2, accelerator="H100")), "accelerator_type is H100", "accelerator"),
    "replicas over the group (C10b)": (
        with_gpus(gpu_model(2, replicas=4), replicas=2, gpus=2),
        "4 replicas of 2 GPUs",
        "hold 2",
        "max_replicas",
    ),
    "no GPU at all": (gpu_model(1), "1 GPUs", "0 at most"),
    "GPUs in all": (
        with_gpus(
            merged(
                gpu_model(4),
                {"pipeline": {"stages": {"retriever": {"options": {"ray_actor_options": {"num_gpus": 0.5}}}}}},
            )
        ),
        "4.5 GPUs in all",
        "4 at most",
    ),
    "accelerator without GPUs": (group(accelerator="H100"), "gpus is 0"),
    "GPU in resources": (group(resources={"limits": {"nvidia.com/gpu": "1"}}), "nvidia.com/gpu", "use gpus"),
    "CPUs": (group(logicalCpus=1), "2.5 CPUs in all", "hands out 1"),
    # --- memory
    "store over shm (C38)": (
        group(objectStore="10240000000", sharedMemory="8Gi", resources={"limits": {"memory": "12Gi"}}),
        "objectStore 10240000000",
        "sharedMemory 8Gi",
    ),
    "shm over memory (C38)": (
        group(objectStore="10240000000", sharedMemory="14Gi", resources={"limits": {"memory": "12Gi"}}),
        "sharedMemory 14Gi",
        "resources.limits.memory 12Gi",
    ),
    "store too small": ({"head": {"objectStore": "10Mi"}}, "75Mi"),
    "no room for the hand-off": (group(objectStore="1Gi", sharedMemory="1Gi"), "slotBytes 67108864"),
    "no limit": ({"head": {"resources": {"limits": {"memory": None}}}}, "resources.limits.memory"),
    "request over limit": (group(resources={"requests": {"memory": "20Gi"}}), "20Gi", "10Gi"),
    **CLUSTER,
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_value_is_refused(chart, case):
    change, *words = WRONG[case]
    with pytest.raises(Refused) as refused:
        chart.text(merged(shape_values("cpu"), change))
    told = str(refused.value)
    assert [word for word in words if word not in told] == [], told
    assert "nil pointer" not in told


def test_all_faults_are_told_at_once(chart):
    change = {"upgrade": {"drainSeconds": 300}, "head": {"objectStore": "10Mi"}}
    with pytest.raises(Refused) as refused:
        chart.text(merged(shape_values("cpu"), change))
    assert "drainSeconds" in str(refused.value)
    assert "objectStore" in str(refused.value)
