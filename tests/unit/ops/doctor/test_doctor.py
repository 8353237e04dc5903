"""The doctor as a user runs it: values in, findings and exit code out, against a server that speaks Kubernetes' API."""

import copy
import json

import pytest
import yaml

from app.ops.doctor.__main__ import main
from tests.unit.ops.doctor.conftest import GPU_NODE, TOLERATION, secret, shape, write_kubeconfig


@pytest.fixture
def examine(cluster, hub, tmp_path, capsys):
    """Run the doctor with changed values; return its exit code and the findings that are no ok."""

    def run(*arguments, **changes):
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(shape(hub, **changes)))
        code = main(["--values", str(path), "--namespace", "llm", "--release", "baton", "--json", *arguments])
        told = json.loads(capsys.readouterr().out)
        return code, [entry for entry in told["findings"] if entry["level"] != "ok"]

    return run


def gpu_node(**allocatable):
    node = copy.deepcopy(GPU_NODE)
    node["status"]["allocatable"] |= allocatable
    return node


def group(**changes):
    return [{"name": "gpu", "gpus": 4, "tolerations": [TOLERATION]} | changes]


def only(findings):
    """Return the one finding, which must say how to mend it."""
    assert len(findings) == 1, findings
    assert findings[0]["mend"]
    return f"{findings[0]['level']} {findings[0]['topic']}: {findings[0]['text']}"


def test_a_cluster_that_suits_has_no_findings(examine):
    assert examine() == (0, [])


def test_people_get_lines_and_a_verdict(cluster, hub, tmp_path, capsys):
    del cluster.objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayservices.ray.io"]
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(shape(hub)))
    assert main(["--values", str(path)]) == 1
    out = capsys.readouterr().out
    assert "fault   definitions: the cluster has no rayservices.ray.io\n" in out
    assert "mend: install KubeRay: helm install" in out
    assert out.rstrip().endswith("1 fault, 0 warnings: the release cannot serve like this")


# --- KubeRay --------------------------------------------------------------------------------------------------------


def test_an_old_definition_is_no_definition(cluster, examine):
    name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayservices.ray.io"
    cluster.objects[name] = cluster.definition("v1alpha1")
    code, findings = examine()
    assert code == 1
    assert only(findings) == "fault definitions: rayservices.ray.io is there in v1alpha1, not in v1"


@pytest.mark.parametrize(
    ("operator", "told"),
    [
        ({"image": "quay.io/kuberay/operator:v1.3.2"}, "fault operator: its version is 1.3, and this chart needs 1.6"),
        ({"image": "kuberay/operator@sha256:0"}, "warning operator: its version cannot be told"),
        ({"available": 0}, "fault operator: kuberay-system/kuberay-operator is not available"),
        ({"arguments": ["--watch-namespace=a,b"]}, "fault operator: it watches other namespaces than llm"),
    ],
)
def test_an_operator_that_does_not_do(cluster, examine, operator, told):
    cluster.set_operator(**operator)
    code, findings = examine()
    assert told in only(findings)
    assert code == (1 if told.startswith("fault") else 0)


def test_a_watched_namespace_does(cluster, examine):
    cluster.set_operator(arguments=["--watch-namespace", "a,llm"])
    assert examine() == (0, [])


def test_no_operator(cluster, examine):
    cluster.objects["/apis/apps/v1/deployments"] = {"items": []}
    assert "no KubeRay operator runs" in only(examine()[1])


def test_incremental_upgrades_need_gate_gateways_and_a_class(cluster, examine):
    upgrade = {"type": "NewClusterWithIncrementalUpgrade", "incremental": {"gatewayClassName": "istio"}}
    code, findings = examine(upgrade=upgrade)
    assert code == 1
    assert {entry["topic"] for entry in findings} == {"definitions", "feature gates", "gateway class"}

    cluster.set_operator(arguments=["--feature-gates=A=false,RayServiceIncrementalUpgrade=true"])
    base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
    cluster.objects[f"{base}gateways.gateway.networking.k8s.io"] = cluster.definition("v1")
    cluster.objects["/apis/gateway.networking.k8s.io/v1/gatewayclasses/istio"] = {}
    assert examine(upgrade=upgrade) == (0, [])


def test_a_route_needs_the_gateway_api(examine):
    assert "no httproutes.gateway" in only(examine(gateway={"httpRoute": {"enabled": True, "parentRefs": [{}]}})[1])


@pytest.mark.parametrize(("owner", "code"), [("baton", 0), ("other", 1), (None, 1)])
def test_a_ray_service_of_that_name(cluster, examine, owner, code):
    annotations = {"meta.helm.sh/release-name": owner} if owner else {}
    cluster.objects["/apis/ray.io/v1/namespaces/llm/rayservices/baton"] = {"metadata": {"annotations": annotations}}
    found, findings = examine()
    assert found == code
    assert [entry["topic"] for entry in findings] == ["release"] * code


def test_a_release_name_that_is_too_long(examine):
    assert "at most 47 characters" in only(examine("--release", "b" * 48)[1])


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_labels_that_no_node_has(examine):
    told = only(examine(workerGroups=group(nodeSelector={"pool": "h100", "zone": "a"}))[1])
    assert "no node has the labels pool=h100, zone=a (pool: gpu; zone: on no node)" in told


def test_a_taint_that_nothing_tolerates(examine):
    told = only(examine(workerGroups=group(tolerations=[]))[1])
    assert told == "fault worker group gpu: every node that suits it has a taint: nvidia.com/gpu=present:NoSchedule"


def test_a_cordoned_node_does_not_count(cluster, examine):
    node = copy.deepcopy(GPU_NODE)
    node["spec"]["unschedulable"] = True
    cluster.set_nodes(node)
    assert "node.kubernetes.io/unschedulable" in only(examine()[1])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"gpus": 16}, "fault worker group gpu: a pod wants 16 of nvidia.com/gpu, and the largest node has 8"),
        ({"gpuResource": "nvidia.com/mig-3g.40gb"}, "offers nvidia.com/mig-3g.40gb (offered: nvidia.com/gpu)"),
        ({"rdma": {"resource": "rdma/ib"}}, "no node that suits it offers rdma/ib"),
        ({"hugepages": {"amount": "2Gi"}}, "offers hugepages-2Mi"),
        ({"minReplicas": 3, "maxReplicas": 3, "replicas": 3}, "fault worker group gpu: 1 nodes hold 2 of its pods"),
        ({"maxReplicas": 4}, "warning worker group gpu: 1 nodes hold 2 of its pods, and it may want 4"),
        ({"minReplicas": 1, "maxReplicas": 1, "numOfHosts": 3}, "it always wants 3"),
        (
            {"resources": {"requests": {"cpu": "96", "memory": "1Gi"}}},
            "a pod wants 96 of cpu, and the largest node has 95.5",
        ),
        ({"resources": {"requests": {"memory": "2Ti"}}}, "largest node has 1000.0Gi"),
        ({"accelerator": "A100"}, "warning worker group gpu: accelerator is A100, and its nodes carry NVIDIA-H100"),
    ],
)
def test_a_group_that_does_not_fit(examine, changes, told):
    code, findings = examine(workerGroups=group(**changes))
    assert told in only(findings)
    assert code == (0 if findings[0]["level"] == "warning" else 1)


def test_without_an_autoscaler_a_group_has_its_replicas_for_good(examine):
    counts = {"minReplicas": 1, "maxReplicas": 4}
    fixed = {"autoscaling": {"enabled": False}}
    code, findings = examine(workerGroups=group(**counts, replicas=3), **fixed)
    assert (code, only(findings)) == (1, "fault worker group gpu: 1 nodes hold 2 of its pods, and it always wants 3")
    assert examine(workerGroups=group(**counts, replicas=2), **fixed) == (0, [])


def test_classes_that_are_missing(examine):
    groups = group(runtimeClassName="nvidia", priorityClassName="high")
    findings = examine(workerGroups=groups, jobs={"priorityClassName": "low"})[1]
    assert {entry["text"].split(" names ")[0] for entry in findings} == {
        "workerGroups[0].runtimeClassName",
        "workerGroups[0].priorityClassName",
        "jobs.priorityClassName",
    }


# --- models ---------------------------------------------------------------------------------------------------------


def model(source, **engine):
    loading = {"model_id": "m", "model_source": source}
    return {"m": {"engine": {"model_loading_config": loading, "engine_kwargs": engine}}}


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (
            model("org/Llama-3.1-70B-Instruct", tensor_parallel_size=1),
            "fault parallelism: org/Llama-3.1-70B-Instruct takes 140 GB",
        ),
        (model("org/Llama-3.1-8B-Instruct", tensor_parallel_size=4), "which 1 GPUs of 80 GiB hold"),
        (model("org/Llama-3.1-70B-Instruct-AWQ", tensor_parallel_size=4), "takes 39 GB"),
        (model("org/Llama-3.1-8B-Instruct", tensor_parallel_size=2, quantization="fp8"), "takes 8 GB"),
    ],
)
def test_gpus_and_weights(examine, models, told):
    assert told in only(examine(models=models)[1])


@pytest.mark.parametrize("source", ["org/Llama-3.1-8B-Instruct", "org/Qwen2.5-14B-Instruct"])
def test_one_gpu_that_suits(examine, source):
    assert examine(models=model(source)) == (0, [])


def test_a_cache_that_is_too_small(examine, hub):
    cache = {"kind": "claim", "mirror": hub, "claim": {"size": "100Gi", "accessMode": "ReadWriteOnce"}}
    told = only(examine(modelCache=cache)[1])
    assert (
        "modelCache.claim.size is 107 GB, and the files take 142 GB: meta-llama/Llama-3.1-70B-Instruct 140 GB" in told
    )


def test_an_existing_claim(cluster, examine, hub):
    cache = {"kind": "claim", "mirror": hub, "claim": {"existing": "models"}}
    assert "models, which does not exist" in only(examine(modelCache=cache)[1])
    claim = {"spec": {"resources": {"requests": {"storage": "50Gi"}}}, "status": {"phase": "Bound"}}
    cluster.objects["/api/v1/namespaces/llm/persistentvolumeclaims/models"] = claim
    assert "the claim models has 54 GB" in only(examine(modelCache=cache)[1])
    for enough in ("500Gi", "10Pi", "8E"):
        cluster.objects["/api/v1/namespaces/llm/persistentvolumeclaims/models"] = {
            **claim,
            "status": {"phase": "Bound", "capacity": {"storage": enough}},
        }
        assert examine(modelCache=cache) == (0, [])


def test_a_mounted_cache_counts_by_its_free_space_and_what_lies_in_it(examine, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("app.ops.doctor.models.shutil.disk_usage", lambda folder: usage)
    assert "has 1 GB, and the files take 142 GB" in only(examine("--cache", str(tmp_path))[1])
    for name in ("models--meta-llama--Llama-3.1-70B-Instruct", "models--BAAI--bge-m3"):
        (tmp_path / "hub" / name / "snapshots" / "1").mkdir(parents=True)
    assert examine("--cache", str(tmp_path)) == (0, [])


def test_without_a_cache_each_start_fetches(cluster, examine, hub):
    cache = {"kind": "none", "mirror": hub}
    assert "warning model cache: each pod fetches 142 GB" in only(examine(modelCache=cache)[1])
    cluster.set_nodes(gpu_node(**{"ephemeral-storage": "50Gi"}))
    assert "onto nodes with 54 GB of disk" in only(examine(modelCache=cache)[1])


def test_a_size_that_no_name_tells(examine):
    told = only(examine(models=model("org/mystery-chat"))[1])
    assert "the size of org/mystery-chat cannot be told from its name" in told


def test_a_hub_that_does_not_answer(examine):
    cache = {"kind": "claim", "mirror": "http://127.0.0.1:9", "claim": {"accessMode": "ReadWriteOnce"}}
    told = only(examine(modelCache=cache)[1])
    assert "http://127.0.0.1:9 does not answer from here (ConnectError)" in told
    assert examine(modelCache=cache | {"offline": True}) == (0, [])


def test_an_offline_cache_has_to_hold_the_models(examine, tmp_path):
    cache = {"kind": "claim", "offline": True, "claim": {"accessMode": "ReadWriteOnce"}}
    told = only(examine("--cache", str(tmp_path), modelCache=cache)[1])
    assert "BAAI/bge-m3, meta-llama/Llama-3.1-70B-Instruct does not lie in the cache" in told
    for name in ("models--meta-llama--Llama-3.1-70B-Instruct", "models--BAAI--bge-m3"):
        (tmp_path / "hub" / name / "snapshots" / "1").mkdir(parents=True)
    assert examine("--cache", str(tmp_path), modelCache=cache) == (0, [])


def test_paths_need_no_hub(examine):
    path = "/models/llama"
    cache = {"kind": "claim", "mirror": "http://127.0.0.1:9", "claim": {"accessMode": "ReadWriteOnce"}}
    assert examine(models=model(path), pipeline={"embedder": {"source": "/models/e5"}}, modelCache=cache) == (0, [])


# --- volumes, secrets, image ----------------------------------------------------------------------------------------


def test_a_storage_class_that_is_missing(cluster, examine):
    told = only(examine(index={"claim": {"storageClass": "fast"}})[1])
    assert "index.claim.storageClass names fast, which does not exist" in told
    cluster.objects["/apis/storage.k8s.io/v1/storageclasses"] = {"items": [cluster.storage_class("slow")]}
    findings = examine()[1]
    assert [entry["text"] for entry in findings] == ["no storage class is the cluster's default"] * 2
    assert "to one of slow" in findings[0]["mend"]


def test_a_shared_claim_on_a_disk_of_one_node(examine, hub):
    cache = {"kind": "claim", "mirror": hub, "claim": {"accessMode": "ReadWriteMany"}}
    assert "warning volumes: modelCache.claim.accessMode is ReadWriteMany" in only(examine(modelCache=cache)[1])


def test_images_as_volumes_need_a_new_kubernetes(cluster, examine, hub):
    cache = {"kind": "image", "mirror": hub, "image": {"reference": "r/m"}}
    assert examine(modelCache=cache) == (0, [])
    cluster.objects["/version/"] = {"major": "1", "minor": "31"}
    assert "which Kubernetes 1.31 cannot mount" in only(examine(modelCache=cache)[1])


def test_a_restricted_namespace_forbids_folders_of_nodes(cluster, examine, hub):
    cluster.objects["/api/v1/namespaces/llm"] = {
        "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    }
    assert examine() == (0, [])
    cache = {"kind": "hostPath", "hostPath": "/models", "mirror": hub}
    assert "restricted, which forbids modelCache.kind: hostPath" in only(examine(modelCache=cache)[1])


def test_secrets_and_their_keys(cluster, examine):
    wanted = {"HF_TOKEN": {"name": "hub", "key": "token"}}
    assert "secretEnv.HF_TOKEN names the Secret hub, which llm does not have" in only(examine(secretEnv=wanted)[1])
    cluster.objects["/api/v1/namespaces/llm/secrets/hub"] = secret(other="x")
    assert "the Secret hub has no token (it has other)" in only(examine(secretEnv=wanted)[1])
    cluster.objects["/api/v1/namespaces/llm/secrets/hub"] = secret(token="x")
    assert examine(secretEnv=wanted) == (0, [])


def test_secrets_of_api_keys(examine, cluster):
    auth = {"existingSecret": "keys", "key": "file.yaml", "clientSecret": {"name": "client", "key": "secret"}}
    place = "/api/v1/namespaces/llm/secrets"
    cluster.objects[f"{place}/client"] = {"data": {"secret": "eA=="}}
    assert "auth.existingSecret names the Secret keys, which llm does not have" in only(examine(auth=auth)[1])
    cluster.objects[f"{place}/keys"] = {"data": {"keys.yaml": "eA=="}}
    assert "the Secret keys has no file.yaml (it has keys.yaml)" in only(examine(auth=auth)[1])
    cluster.objects[f"{place}/keys"] = {"data": {"file.yaml": "eA=="}}
    assert examine(auth=auth) == (0, [])


def test_the_password_of_a_store_has_to_come_from_somewhere(examine):
    pipeline = {"store": {"kind": "pgvector", "uri": "postgresql://u@h/d", "secretEnv": "PGPASSWORD"}}
    assert "reads PGPASSWORD, which no pod gets" in only(examine(pipeline=pipeline)[1])


def test_an_image_that_nodes_cannot_find(examine):
    told = only(examine(image={"repository": "baton", "tag": "9"})[1])
    assert "fault image: baton:9 is on no node and names no registry" in told
    never = {"repository": "registry.example.com/baton", "tag": "9", "pullPolicy": "Never"}
    assert "on no node, and image.pullPolicy is Never" in only(examine(image=never)[1])


def test_the_charts_own_tag_counts_whatever_it_is(examine):
    assert examine(image={"repository": "registry.example.com/baton", "pullPolicy": "Never"}) == (0, [])


def test_pull_secrets(cluster, examine):
    image = {"repository": "registry.example.com/baton", "tag": "1", "pullSecrets": [{"name": "pull"}]}
    assert "the pull secret pull does not exist" in only(examine(image=image)[1])
    place = "/api/v1/namespaces/llm/secrets/pull"
    cluster.objects[place] = secret(password="x")
    assert "is no pull secret" in only(examine(image=image)[1])
    cluster.objects[place] = secret(**{".dockerconfigjson": '{"auths": {"ghcr.io": {}}}'})
    assert "is for ghcr.io, and the image lies in registry.example.com" in only(examine(image=image)[1])
    cluster.objects[place] = secret(**{".dockerconfigjson": '{"auths": {"https://registry.example.com": {}}}'})
    assert examine(image=image) == (0, [])


# --- when it cannot look --------------------------------------------------------------------------------------------


def test_what_may_not_be_read_is_told(cluster, examine):
    cluster.objects["/api/v1/nodes"] = 403
    code, findings = examine()
    assert code == 0
    assert "warning permissions: this account may not read nodes" in only(findings)


def test_an_api_that_fails(cluster, hub, tmp_path, capsys):
    cluster.objects["/api/v1/nodes"] = 500
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(shape(hub)))
    assert main(["--values", str(path)]) == 1
    assert capsys.readouterr().err == "doctor: The Kubernetes API answered 500 when asked for nodes.\n"


def test_an_api_that_does_not_answer(tmp_path, hub, monkeypatch, capsys):
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(shape(hub)))
    assert main(["--values", str(path)]) == 1
    assert "The Kubernetes API at http://127.0.0.1:9 does not answer" in capsys.readouterr().err


def test_no_cluster_at_all(tmp_path, hub, monkeypatch, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(shape(hub)))
    assert main(["--values", str(path)]) == 1
    assert "No cluster to look at" in capsys.readouterr().err
