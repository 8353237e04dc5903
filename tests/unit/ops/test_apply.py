"""What `make apply` finds out about the Baton that runs before it sends anything."""

import http.server
import json
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
import yaml

from app.config.local import ROOT
from app.ops import apply, run
from tests.unit.ops.serving import Answers, serving

LOCAL = ROOT / "config" / "local.yaml"


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.sent = []


class Handler(Answers, http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(self.server.answer)

    def do_PUT(self):
        self.server.sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.reply(b"{}")


@dataclass
class Running:
    """A Baton as `make apply` sees it: Serve's REST API, and the gateway."""

    serve: Server
    gateway: Server
    data: object
    state: dict = field(default_factory=dict)

    def apply(self, port=None, **others):
        self.serve.answer = json.dumps(self.state).encode()
        options = {"port": port or self.gateway.server_port, "dashboard-port": self.serve.server_port, **others}
        given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return apply.main(["--data", str(self.data), *given])


@pytest.fixture
def running(tmp_path):
    for folder in run.prepared_models(tmp_path):
        folder.mkdir(parents=True)
    with ExitStack() as stack:
        serve, gateway = (stack.enter_context(serving(Server(b'{"data": [{"name": "docs"}]}'))) for _ in range(2))
        names = ("pipeline", "model-smollm2")
        stages = ("gateway", "retriever", "postprocessor")
        deployments = {name: {"status": "HEALTHY", "message": ""} for name in stages}
        applications = {name: {"status": "RUNNING", "message": "", "deployments": deployments} for name in names}
        options = {"host": "127.0.0.1", "port": gateway.server_port}
        yield Running(serve, gateway, tmp_path, {"applications": applications, "http_options": options})


def test_what_fits_is_sent(running, capsys):
    assert running.apply() == 0
    assert [found["name"] for found in running.serve.sent[0]["applications"]] == ["model-smollm2", "pipeline"]
    assert "in force" in capsys.readouterr().out


def test_a_folder_without_models_is_refused(running, capsys, tmp_path):
    running.data = tmp_path / "nope"
    assert running.apply() == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/nope' is not the folder" in told
    assert "--data" in told
    assert told.count("\n") == 1
    assert running.serve.sent == []


def test_another_port_than_the_running_gateways_is_refused(running, capsys):
    assert running.apply(port=8100) == 2
    told = capsys.readouterr().err
    assert f"listens at port {running.gateway.server_port}" in told
    assert "machine.port is 8100" in told
    assert running.serve.sent == []


@pytest.mark.parametrize(("served", "asked"), [(9000, None), (None, 9000), (9000, 9001)])
def test_another_grpc_port_than_the_running_one_is_refused(running, capsys, served, asked):
    functions = ["app.deployments.rpc_proxy:add_to_server"] if served else []
    running.state["grpc_options"] = {"port": served or 9000, "grpc_servicer_functions": functions}
    assert running.apply(**({"grpc-port": asked} if asked else {})) == 2
    assert f"serves gRPC {f'at port {served}' if served else 'nowhere'}" in capsys.readouterr().err
    assert running.serve.sent == []


def test_the_same_grpc_port_is_taken(running):
    running.state["grpc_options"] = {
        "port": 9000,
        "grpc_servicer_functions": ["app.deployments.rpc_proxy:add_to_server"],
    }
    assert running.apply(**{"grpc-port": 9000}) == 0
    assert running.serve.sent[0]["grpc_options"]["port"] == 9000


def test_one_port_for_two_things_is_refused(running, capsys):
    assert running.apply(**{"metrics-port": running.gateway.server_port}) == 2
    assert "has to be another one" in capsys.readouterr().err
    assert running.serve.sent == []


@pytest.mark.parametrize("answer", [b"# HELP something", b"[1]", b"\xff", b""])
def test_what_is_no_gateway_at_its_port_costs_no_traceback(running, answer, capsys):
    running.gateway.answer = answer
    del running.state["http_options"]
    assert running.apply() == 0
    assert "Traceback" not in capsys.readouterr().err


def test_what_is_no_serve_at_its_port_is_no_baton(running, capsys):
    options = ["--dashboard-port", str(running.gateway.server_port)]
    running.gateway.answer = b"<html>"
    assert apply.main(["--data", str(running.data), *options]) == 2
    assert "No Baton answers at port" in capsys.readouterr().err


def test_a_stage_that_moves_into_the_gateway_is_said_before_it_is_sent(running, capsys, tmp_path):
    raw = yaml.safe_load(LOCAL.read_text())
    raw["pipeline"]["stages"]["retriever"] = {"placement": "gateway"}
    path = tmp_path / "local.yaml"
    path.write_text(yaml.safe_dump(raw))
    assert running.apply(config=path) == 0
    told = capsys.readouterr().out
    assert "warning: the retriever moves from its deployment into the gateway" in told
    assert "postprocessor" not in told
