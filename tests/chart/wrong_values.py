"""Values that the chart refuses, about the cluster, its volumes and the way in, and what such values are made of."""

from scripts.helm_render import merged, shape_values

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


def batch(**values):
    usual = {"input": "/batch/a.jsonl", "output": "/batch/b.jsonl", "volume": {"emptyDir": {}}}
    return {"batch": {"nightly": {**usual, **values}}}


def group(**values):
    return {"workerGroups": [merged(CPU, values)]}


def with_gpus(change, *, replicas=1, **values):
    return {**change, "workerGroups": [CPU, {**H100, "replicas": replicas, **values}]}


#: Values over the shape `cpu`, and the words that the refusal has to hold.
CLUSTER = {
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
    # --- applications
    "application's policy": (
        {"applications": {"analyze": {"enabled": True, "settings": {"policy": "strict"}}}},
        "applications.analyze.settings.policy names strict",
        "settings.guardrail.policies",
    ),
    "application that hides a profile": (
        {
            "applications": {"articles": {"enabled": True}},
            "settings": {"profiles": {"articles": {"model": "smollm2"}}},
        },
        "served at /articles",
        "rename the profile",
    ),
    "backend without a model": (
        {
            "applications": {
                "analyze": {"enabled": True, "stages": {"summary": {"backend": {"kind": "model", "source": "x"}}}}
            }
        },
        "applications.analyze.stages.summary.backend asks the application model-x",
        "smollm2",
    ),
    "application's own limit as an option": (
        {
            "applications": {
                "analyze": {"enabled": True, "stages": {"summary": {"options": {"max_ongoing_requests": 3}}}}
            }
        },
        "applications.analyze.stages.summary.options.max_ongoing_requests",
        "use the key maxOngoingRequests",
    ),
    "application's summary of impossible length": (
        {"applications": {"analyze": {"enabled": True, "settings": {"summary": {"minTokens": 200}}}}},
        "applications.analyze.settings.summary.minTokens is 200, more than maxTokens (100)",
    ),
    "negative labels that no model gives": (
        {
            "applications": {
                "analyze": {
                    "enabled": True,
                    "stages": {
                        "sentiment": {"backend": {"kind": "model", "source": "smollm2", "negativeLabels": ["Bad"]}}
                    },
                }
            }
        },
        "applications.analyze.stages.sentiment.backend.negativeLabels names none of the labels",
    ),
    "articles that cannot be fetched": (
        {"applications": {"articles": {"enabled": True}}, "networkPolicy": {"enabled": True, "egress": True}},
        "cuts the pods off the pages that applications.articles fetches",
        "networkPolicy.egressTo",
    ),
    "more CPUs than there are for an application": (
        {
            "applications": {
                "analyze": {
                    "enabled": True,
                    "stages": {"summary": {"options": {"ray_actor_options": {"num_cpus": 999}}}},
                }
            }
        },
        "CPUs in all",
        "raise logicalCpus",
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
    "grpc on the gateway's port": ({"grpc": {"enabled": True, "port": 8000}}, "grpc.port 8000", "choose another"),
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
    "batch without a volume": (batch(volume=None), "batch.nightly reads or writes files and has no volume"),
    "batch without a place for its progress": (
        batch(volume=None, input="s3://rows/a.jsonl", output="s3://rows/b.jsonl"),
        "batch.nightly has no volume to keep what is done on",
    ),
    "batch beside its volume": (batch(output="/elsewhere/b.jsonl"), "/elsewhere/b.jsonl", "batch.nightly.mountPath"),
    "batch over itself": (batch(output="/batch/a.jsonl"), "input and output are the same file"),
    "batch of another format": (batch(input="/batch/a.csv"), "/batch/nightly/input"),
    "batch with a name that a shell reads": (batch(input="/batch/$(id).jsonl"), "/batch/nightly/input"),
    "batch that meets its own output": (batch(schedule="0 1 * * *"), "put {date} into batch.nightly.output"),
    "batch with half a schedule": (batch(schedule="0 1"), "/batch/nightly/schedule"),
    "batch of an unknown class": (batch(priority="low"), "batch.nightly.priority names low"),
    "batch without a key": (
        merged(batch(), {"settings": {"auth": {"enabled": True}}, "auth": {"existingSecret": "k"}}),
        "closes the gateway to batch.nightly",
    ),
    "batch with an index of one pod": (batch(engine="own"), "index.claim.accessMode to ReadWriteMany"),
    "batch without the gate": (
        batch(engine="own", schedule="0 1 * * *", output="/batch/{date}.jsonl"),
        "feature gate RayCronJob",
    ),
    "batch with a long name": (
        merged(batch(engine="own"), {"fullnameOverride": "a" * 30}),
        "has 44 characters",
        "KubeRay takes at most 32",
    ),
    "batches of the API on no volume": (
        {"settings": {"batches": {"folder": "/files"}}},
        "settings.batches.folder is /files, and workerGroups cpu-workers",
        "mount one claim",
    ),
    "batches of the API of an unknown class": (
        {"settings": {"batches": {"folder": "/files", "priority": "low"}}},
        "settings.batches.priority names low",
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
