"""Servers that rollouts talk to: the Kubernetes API with one RayService, Ray's dashboard, a Prometheus."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.unit.ops.serving import Answers

SERVICE = "/apis/ray.io/v1/namespaces/ns/rayservices/baton"
SERVE = "/api/v1/namespaces/ns/services/baton-head-svc:8265/proxy/api/serve/applications/"


def serve_config(weights=(1.0, 0.0), scaling=None, gpus=0):
    """Return a Serve configuration with two models and a routed profile."""

    def model(name, least):
        deployment = {"name": "generator", "autoscaling_config": {"min_replicas": least, "max_replicas": 2}}
        deployment["autoscaling_config"]["initial_replicas"] = least
        engine = {"engine_kwargs": {"tensor_parallel_size": gpus}, "placement_group_config": {"bundles": []}}
        if not gpus:
            engine = {"placement_group_config": {"bundles": [{"CPU": 1}]}}
        return {"name": f"model-{name}", "args": engine, "deployments": [deployment | (scaling or {})]}

    variants = {
        "old": {"weight": weights[0], "model": "a"},
        "new": {"weight": weights[1], "model": "b", "systemPrompt": "Sei höflich <b>."},
    }
    gateway = {
        "profiles": {"chat": {"model": "a"}, "other": {"model": "a"}},
        "routing": {"chat": {"sticky": "user", "variants": variants}},
        "modelCapacity": {"a": 3},
    }
    return {
        "http_options": {"host": "0.0.0.0", "port": 8000},
        "applications": [
            model("a", 1),
            model("b", 0),
            {
                "name": "pipeline",
                "args": {"models": {"a": {"application": "model-a"}, "b": {"application": "model-b"}}},
                "deployments": [{"name": "gateway", "user_config": gateway}, {"name": "retriever"}],
            },
        ],
    }


def running(*names, **others):
    """Return statuses as KubeRay reports them."""
    found = dict.fromkeys(names, ("RUNNING", "HEALTHY"))
    found |= {name.replace("_", "-"): status for name, status in others.items()}
    return {
        name: {"status": status, "serveDeploymentStatuses": {"d": {"status": part}}}
        for name, (status, part) in found.items()
    }


class KubeApi:
    """Objects by path, with versions; ``before_write`` is called once before the next change."""

    def __init__(self):
        self.version = 1
        self.objects = {}
        self.events = []
        self.requests = []
        self.refuse = {}
        self.before_write = None
        statuses = running("pipeline", "model-a", "model-b")
        self.put(
            SERVICE,
            {
                "metadata": {"name": "baton", "uid": "u-1", "annotations": {"kept": "yes"}},
                "spec": {"serveConfigV2": json.dumps(serve_config(), indent=2), "rayVersion": "2.60.0"},
                "status": {"activeServiceStatus": {"rayClusterName": "c-1", "applicationStatuses": statuses}},
            },
        )
        self.replicas(a=["RUNNING"], b=[])

    def put(self, path, found):
        self.version += 1
        found["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = found
        return found

    def replicas(self, **states):
        """Let Serve tell these states of the models' replicas."""
        told = {name: [{"state": state} for state in found] for name, found in states.items()}
        applications = {f"model-{name}": {"deployments": {"generator": {"replicas": told[name]}}} for name in told}
        self.objects[SERVE] = {"applications": applications}

    @property
    def service(self):
        return self.objects[SERVICE]

    @property
    def config(self):
        return json.loads(self.service["spec"]["serveConfigV2"])

    @property
    def weights(self):
        variants = self.config["applications"][2]["deployments"][0]["user_config"]["routing"]["chat"]["variants"]
        return {name: found["weight"] for name, found in variants.items()}

    def change(self, config):
        """Do what `helm upgrade` does."""
        found = self.service
        found["spec"]["serveConfigV2"] = json.dumps(config)
        self.put(SERVICE, found)

    def answer(self, method, path, body, kind):
        self.requests.append((method, path))
        if (method, path) in self.refuse:
            return self.refuse[method, path], {"message": "no"}
        if method != "GET" and self.before_write:
            change, self.before_write = self.before_write, None
            change()
        if method == "GET":
            found = self.objects.get(path)
            return (200, found) if found else (404, {})
        if method == "POST":
            name = body["metadata"]["name"]
            if path.endswith("/events"):
                taken = name in [event["metadata"]["name"] for event in self.events]
                self.events += [] if taken else [body]
                return (409, {}) if taken else (201, body)
            return 201, self.put(f"{path}/{name}", body)
        old = self.objects[path]
        version = body["metadata"].get("resourceVersion")
        if version != old["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        if method == "PATCH":
            assert kind == "application/merge-patch+json"
            body = merged(old, body)
        return 200, self.put(path, body)

    def server(self):
        """Return a server that answers for it."""
        api = self

        class Handler(Answers, BaseHTTPRequestHandler):
            def do_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                path = urlsplit(self.path).path
                status, found = api.answer(self.command, path, body, self.headers.get("Content-Type"))
                self.reply(json.dumps(found).encode(), status)

            do_GET = do_POST = do_PUT = do_PATCH = do_any  # noqa: N815 - the base class calls them so

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def merged(old, patch):
    """Apply a merge patch."""
    found = dict(old)
    for key, value in patch.items():
        found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


class Dashboard:
    """Serve's REST API of a pipeline on this machine."""

    def __init__(self):
        self.config = serve_config()
        self.statuses = dict.fromkeys(("pipeline", "model-a", "model-b"), "RUNNING")
        self.puts = []

    def body(self):
        applications = {
            found["name"]: {
                "status": self.statuses[found["name"]],
                "deployed_app_config": {**found, "logging_config": {"encoding": "JSON"}},
                "deployments": {part["name"]: {"status": "HEALTHY"} for part in found["deployments"]},
            }
            for found in self.config["applications"]
        }
        head = {"proxy_location": "HeadOnly", "http_options": self.config["http_options"], "controller_info": {}}
        return {**head, "applications": applications}

    def server(self):
        """Return a server that answers for it."""
        dashboard = self

        class Handler(Answers, BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(json.dumps(dashboard.body()).encode())

            def do_PUT(self):
                found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                dashboard.puts.append(found)
                dashboard.config = found
                self.reply(b"")

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


class PrometheusSite:
    """Answers queries with what ``answer(query)`` returns: a number, a list of numbers, a whole body or a status."""

    def __init__(self, answer):
        self.answer = answer
        self.queries = []

    def server(self):
        """Return a server that answers for it."""
        site = self

        class Handler(Answers, BaseHTTPRequestHandler):
            def do_POST(self):
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                site.queries.append((form["query"][0], self.headers.get("Authorization")))
                found = site.answer(form["query"][0])
                if isinstance(found, bytes):
                    self.reply(found, 502)
                    return
                if not isinstance(found, dict):
                    rows = found if isinstance(found, list) else [found]
                    result = [{"metric": {}, "value": [0, str(value)]} for value in rows]
                    found = {"status": "success", "data": {"resultType": "vector", "result": result}}
                self.reply(json.dumps(found).encode(), 200 if found["status"] == "success" else 400)

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
