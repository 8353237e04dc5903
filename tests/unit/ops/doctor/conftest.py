"""A small server that answers the Kubernetes API's reads, and a kubeconfig that leads to it."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
import yaml

GPU_NODE = {
    "metadata": {
        "name": "gpu-1",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559", "pool": "gpu"},
    },
    "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {
            "cpu": "95500m",
            "memory": "1000Gi",
            "ephemeral-storage": "2000Gi",
            "nvidia.com/gpu": "8",
        },
        "images": [{"names": ["registry.example.com/baton:1"]}],
    },
}


def secret(**data):
    """Return a Secret with these texts."""
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}


class FakeCluster:
    """Objects by path of the Kubernetes API; what is not there answers 404, what is a number answers that status."""

    def __init__(self):
        self.objects = {
            "/version/": {"major": "1", "minor": "34+"},
            "/api/v1/nodes": {"items": [GPU_NODE]},
            "/apis/apps/v1/deployments": {"items": [self.operator()]},
            "/apis/storage.k8s.io/v1/storageclasses": {"items": [self.storage_class("standard", default=True)]},
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayservices.ray.io": self.definition("v1"),
        }
        self.asked = []

    @staticmethod
    def operator(image="quay.io/kuberay/operator:v1.6.0", arguments=(), available=1):
        """Return the operator's Deployment."""
        container = {"name": "kuberay-operator", "image": image, "args": list(arguments)}
        return {
            "metadata": {"name": "kuberay-operator", "namespace": "kuberay-system"},
            "spec": {"template": {"spec": {"containers": [container]}}},
            "status": {"availableReplicas": available},
        }

    @staticmethod
    def storage_class(name, provisioner="rancher.io/local-path", default=False):
        """Return a storage class."""
        annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
        return {"metadata": {"name": name, "annotations": annotations}, "provisioner": provisioner}

    @staticmethod
    def definition(*versions):
        """Return the definition of a custom resource."""
        return {"spec": {"versions": [{"name": version, "served": True} for version in versions]}}

    def set_operator(self, **options):
        """Replace the operator's Deployment."""
        self.objects["/apis/apps/v1/deployments"] = {"items": [self.operator(**options)]}

    def set_nodes(self, *nodes):
        """Replace the nodes."""
        self.objects["/api/v1/nodes"] = {"items": list(nodes)}

    def answer(self, path):
        """Return the status and the body for a path."""
        self.asked.append(path)
        found = self.objects.get(path, 404)
        if isinstance(found, int):
            return found, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": found}
        return 200, found


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A cluster that suits the shapes of these tests, and the kubeconfig that `KUBECONFIG` names."""
    fake = FakeCluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = fake.answer(urlsplit(self.path).path)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    yield fake
    server.shutdown()
    thread.join()
    server.server_close()


def write_kubeconfig(path, server):
    """Write a kubeconfig with one context, `fake`."""
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": server}}],
        "users": [{"name": "fake", "user": {"token": "t"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
    path.write_text(yaml.safe_dump(configuration))


@pytest.fixture
def hub(monkeypatch):
    """A model hub on this machine: its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ANY = {"operator": "Exists"}


def shape(hub, **changes):
    """Return values that suit the fake cluster, changed at their top level."""
    values = {
        "image": {"repository": "registry.example.com/baton", "tag": "1"},
        "models": {
            "llama": {
                "engine": {
                    "model_loading_config": {"model_id": "llama", "model_source": "meta-llama/Llama-3.1-70B-Instruct"},
                    "engine_kwargs": {"tensor_parallel_size": 4, "gpu_memory_utilization": 0.9},
                }
            }
        },
        "head": {"tolerations": [ANY]},
        "workerGroups": [
            {"name": "gpu", "gpus": 4, "minReplicas": 1, "maxReplicas": 2, "tolerations": [TOLERATION]},
        ],
        "modelCache": {"kind": "claim", "mirror": hub, "claim": {"accessMode": "ReadWriteOnce"}},
    }
    return values | changes
