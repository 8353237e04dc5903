"""Every wrong value is refused with a sentence that says what to change."""

import pytest

from scripts.helm_render import Refused, merged, shape_values

MODEL = "models.smollm2"
OPTIONS = {"num_replicas": None, "max_ongoing_requests": 8, "max_queued_requests": 8}
H100 = {"name": "gpu-workers", "gpus": 4, "replicas": 1, "maxReplicas": 2, "index": False}
CPU = shape_values("cpu")["workerGroups"][0]
HUB = {"pipeline": {"embedder": {"source": "BAAI/bge-m3", "localFilesOnly": False}}}

PLAN = {
    "name": "v2",
    "profile": "default",
    "stable": "old",
    "canary": "new",
    "steps": [{"share": 10, "seconds": 60}],
    "gates": [{"gate": "errors", "bound": 0.1}],
}


def model(engine=None, **values):
    return {"models": {"smollm2": {**({"engine": engine} if engine else {}), **values}}}


def routing(values, profile="default"):
    return {"settings": {"routing": {profile: values}}}


def autoscaling(**values):
    return model(options={"max_ongoing_requests": 8, "autoscaling_config": values})


def gpu_model(tp, pp=1, strategy="PACK", accelerator=None, replicas=1):
    return model(
        engine={
            "accelerator_type": accelerator,
            "placement_group_config": {
                "bundles": None,
                "bundle_per_worker": {"CPU": 1, "GPU": 1},
                "strategy": strategy,
            },
            "engine_kwargs": {"tensor_parallel_size": tp, "pipeline_parallel_size": pp},
        },
        options={"autoscaling_config": {"min_replicas": 1, "max_replicas": replicas, "initial_replicas": 1}},
    )


def group(**values):
    return {"workerGroups": [merged(CPU, values)]}


def with_gpus(change, *, replicas=1, **values):
    return {**change, "workerGroups": [CPU, {**H100, "replicas": replicas, **values}]}


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
    # --- the cluster
    "num-cpus": (group(rayStartParams={"num-cpus": "4"}), "rayStartParams.num-cpus", "logicalCpus"),
    "the chart's own resource": (group(rayResources={"baton-index": 1}), "rayResources.baton-index", "use index"),
    "resource that no pod offers": (
        model(engine={"placement_group_config": {"bundles": [{"CPU": 1, "chat": 1}]}}),
        "models.smollm2.engine.placement_group_config.bundles: no pod offers chat",
        "rayResources",
    ),
    "more of a resource than a pod offers": (
        {
            "pipeline": {"stages": {"retriever": {"options": {"ray_actor_options": {"resources": {"disk": 2}}}}}},
            **group(rayResources={"disk": 1}),
        },
        "2 of disk",
        "a pod offers 1",
    ),
    "redis password as parameter": ({"head": {"rayStartParams": {"redis-password": "x"}}}, "passwordSecret"),
    "no groups": ({"workerGroups": []}, "workerGroups is empty"),
    "group called head": (group(name="head"), "the name head"),
    "two groups of one name": ({"workerGroups": [CPU, CPU]}, "cpu-workers is used twice"),
    "replicas outside": (group(replicas=5), "replicas 5", "maxReplicas 2"),
    "grace": ({"upgrade": {"drainSeconds": 300}}, "terminationGracePeriodSeconds is 120", "drainSeconds 300"),
    "shutdown over grace": (
        {"pipeline": {"stages": {"retriever": {"options": {"graceful_shutdown_timeout_s": 500}}}}},
        "graceful_shutdown_timeout_s is 500",
        "terminationGracePeriodSeconds 120",
    ),
    "old cluster": (
        {"upgrade": {"clusterDeletionDelaySeconds": 60}},
        "clusterDeletionDelaySeconds is 60",
        "maxTimeoutSeconds 600",
    ),
    "incremental without autoscaler": (
        {"upgrade": {"type": "NewClusterWithIncrementalUpgrade"}},
        "autoscaling.enabled",
        "gatewayClassName",
        "feature gate RayServiceIncrementalUpgrade",
    ),
    "no redis": ({"gcsFaultTolerance": {"enabled": True}}, "redisAddress", "redis.enabled"),
    "two redis": (
        {"gcsFaultTolerance": {"enabled": True, "redisAddress": "r:6379", "redis": {"enabled": True}}},
        "one Redis",
    ),
    "redis without password": (
        {"gcsFaultTolerance": {"enabled": True, "redis": {"enabled": True}}},
        "gcsFaultTolerance.passwordSecret",
    ),
    "redis by env (C08)": (
        {"head": {"env": {"RAY_REDIS_ADDRESS": "redis:6379", "REDIS_PASSWORD": "x"}}},
        "head.env.RAY_REDIS_ADDRESS",
        "head.env.REDIS_PASSWORD",
        "gcsFaultTolerance",
    ),
    "owned env": ({"env": {"HF_HUB_OFFLINE": "0"}}, "env.HF_HUB_OFFLINE", "modelCache.offline"),
    "runtime env": ({"runtimeEnv": {"env_vars": {"A": 1}}}, "runtimeEnv.env_vars.A", "in quotes"),
    "runtime env of an engine": (
        model(engine={"runtime_env": {"env_vars": {"A": True}}}),
        "engine.runtime_env.env_vars.A",
        "in quotes",
    ),
    "owned env of a group": (group(env={"HF_HUB_OFFLINE": "0"}), "workerGroups cpu-workers: env.HF_HUB_OFFLINE"),
    "owned env from a Secret": (
        {"secretEnv": {"RAY_ADDRESS": {"name": "a", "key": "b"}}},
        "secretEnv.RAY_ADDRESS: leave it out",
    ),
    "redis by the env of a group": (group(env={"REDIS_PASSWORD": "x"}), "env.REDIS_PASSWORD", "gcsFaultTolerance"),
    "env twice": (
        {"env": {"HF_TOKEN": "x"}, "secretEnv": {"HF_TOKEN": {"name": "a", "key": "b"}}},
        "env.HF_TOKEN stands in secretEnv as well",
    ),
    "more CPUs asked for than allowed": (
        group(resources={"requests": {"cpu": "2500m"}, "limits": {"cpu": "2"}}),
        "requests.cpu 2500m is above",
        "2: lower it",
    ),
    "CPUs in bytes": (group(resources={"requests": {"cpu": "8Gi"}}), "resources.requests.cpu is 8Gi", "500m"),
    "secret of the store that no pod gets": (
        {"pipeline": {"store": {"kind": "pgvector", "uri": "postgresql://u@h/b", "secretEnv": "PGPASSWORD"}}},
        "PGPASSWORD",
        "add it to secretEnv",
    ),
    # --- volumes
    "volume of the chart's name": (group(volumes=[{"name": "tmp", "emptyDir": {}}]), "the name tmp", "choose another"),
    "mount of no volume": (group(volumeMounts=[{"name": "x", "mountPath": "/x"}]), "volumeMounts names x"),
    "mount over another": (
        {"head": {"volumes": [{"name": "x", "emptyDir": {}}], "volumeMounts": [{"name": "x", "mountPath": "/tmp"}]}},
        "head: something is mounted at /tmp already",
    ),
    "cache over the index": ({"modelCache": {"kind": "claim", "mountPath": "/data"}}, "modelCache.mountPath is /data"),
    "index over the code": ({"index": {"mountPath": "/opt/baton"}}, "index.mountPath is /opt/baton"),
    "index that is read only": ({"index": {"claim": {"accessMode": "ReadOnlyMany"}}}, "index.claim.accessMode"),
    "empty cache that is read only": (
        {"modelCache": {"kind": "claim", "claim": {"accessMode": "ReadOnlyMany"}}},
        "modelCache.claim.existing",
    ),
    "store outside": ({"pipeline": {"store": {"uri": "/index"}}}, "/index", "index.mountPath /data"),
    "index on several nodes": (
        {"index": {"claim": {"singleNode": False}}, **group(replicas=2)},
        "ReadWriteOnce",
        "2 pods",
        "ReadWriteMany",
    ),
    "index per pod": ({"index": {"kind": "pod"}, **group(replicas=2)}, "index of its own", "claim"),
    "index nowhere": (group(index=False), "index: true"),
    "cache without path": ({"modelCache": {"kind": "hostPath"}}, "modelCache.hostPath"),
    "cache without image": ({"modelCache": {"kind": "image"}}, "modelCache.image.reference"),
    "cache on one node": (
        {"modelCache": {"kind": "claim", "claim": {"accessMode": "ReadWriteOnce"}}},
        "modelCache.claim.accessMode ReadWriteOnce",
    ),
    "preload to nowhere": ({"modelCache": {"offline": False, "preload": {"enabled": True}}}, "modelCache.preload"),
    "offline and mirror": ({"modelCache": {"mirror": "http://mirror"}}, "modelCache.mirror"),
    "offline and an id (C14)": (
        model(engine={"model_loading_config": {"model_source": "meta-llama/Llama-3.1-8B-Instruct"}}),
        "meta-llama/Llama-3.1-8B-Instruct",
        "give a path",
    ),
    "offline and an embedder (C14)": ({"pipeline": {"embedder": {"source": "BAAI/bge-m3"}}}, "embedder", "BAAI/bge-m3"),
    # --- the way in
    "egress without the API": (
        {"networkPolicy": {"enabled": True, "egress": True}, "autoscaling": {"enabled": True}},
        "autoscaler",
        "networkPolicy.egressTo",
    ),
    "keys without a Secret": ({"settings": {"auth": {"enabled": True}}}, "auth.existingSecret", "docs/keys.md"),
    "Jobs without a key": (
        {"settings": {"auth": {"enabled": True}}, "auth": {"existingSecret": "baton-keys"}},
        "auth.clientSecret",
        "ingest",
    ),
    "a relative file of keys": ({"settings": {"auth": {"keysFile": "keys.yaml"}}}, "/settings/auth/keysFile"),
    "logs to nowhere": ({"logCollector": {"enabled": True}}, "logCollector.endpoint"),
    "traces behind a closed door": (
        {
            "networkPolicy": {"enabled": True, "egress": True},
            "settings": {"traces": {"endpoint": "http://c:4318/v1/traces"}},
        },
        "traces and logs",
        "networkPolicy.egressTo",
    ),
    "egress without the hub": (
        {"networkPolicy": {"enabled": True, "egress": True}, "modelCache": {"offline": False}, **HUB},
        "the model hub, which BAAI/bge-m3 come from",
        "networkPolicy.egressTo",
        "modelCache.offline",
    ),
    "egress without Redis, store and the doctor's API": (
        {
            "networkPolicy": {"enabled": True, "egress": True},
            "doctor": {"enabled": True},
            "gcsFaultTolerance": {"enabled": True, "redisAddress": "redis:6379"},
            "pipeline": {"store": {"kind": "qdrant", "uri": "http://qdrant:6333"}},
        },
        "gcsFaultTolerance.redisAddress redis:6379",
        "pipeline.store.uri http://qdrant:6333",
        "the doctor asks",
    ),
    "rollout without a plan": ({"rollout": {"enabled": True, "prometheusUrl": "http://p:9090"}}, "needs rollout.plan"),
    "rollout without Prometheus": ({"rollout": {"enabled": True, "plan": PLAN}}, "needs rollout.prometheusUrl"),
    "blue and green in a Job": (
        {"rollout": {"enabled": True, "plan": {**PLAN, "blueGreen": {"old": "model-a", "new": "model-b"}}}},
        "rollout.plan.blueGreen",
        "app.ops.rollout blue-green",
    ),
    "rollout without variants": (
        {"rollout": {"enabled": True, "plan": PLAN, "prometheusUrl": "http://p:9090"}},
        "the variant old, which settings.routing.default.variants does not hold",
    ),
    "rollout without a gate": ({"rollout": {"plan": {**PLAN, "gates": []}}}, "/rollout/plan"),
    "rollout with an unknown gate": (
        {"rollout": {"plan": {**PLAN, "gates": [{"gate": "x", "bound": 1}]}}},
        "/rollout/plan",
    ),
    "rollout cut off": (
        {
            "networkPolicy": {"enabled": True, "egress": True},
            "rollout": {"enabled": True, "plan": PLAN, "prometheusUrl": "http://p:9090"},
        },
        "the rollout's Job off",
        "networkPolicy.egressTo",
    ),
    "Grafana without Prometheus": ({"head": {"grafana": {"host": "http://g"}}}, "head.grafana.prometheusHost"),
    "TLS without host": ({"gateway": {"ingress": {"enabled": True, "tlsSecret": "x"}}}, "gateway.ingress.host"),
    "route without gateway": ({"gateway": {"httpRoute": {"enabled": True}}}, "parentRefs", "gateway.create"),
    "gateway without class": (
        {"gateway": {"httpRoute": {"enabled": True, "gateway": {"create": True}}}},
        "gateway.className",
    ),
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
