"""manifests/serve/cpu.yaml on a cluster that `ray start` made, as README.md says: no Kubernetes, no `make run`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
import yaml

from app.arena import remove_orphans
from app.config.local import ROOT
from app.ops.local_cluster import ENVIRONMENT
from tests.app.baton import START_SECONDS, events

PROGRAMS = Path(sys.executable).parent
# Beyond the ports that Ray's workers choose from.
PORTS = {"gcs": 26379, "dashboard": 28270, "agent": 28271, "client": 28272, "metrics": 28273, "http": 28274}
DASHBOARD = f"http://127.0.0.1:{PORTS['dashboard']}"
GATEWAY = f"http://127.0.0.1:{PORTS['http']}"


def environment():
    places = os.pathsep.join([str(ROOT / "app" / "ops" / "python_start"), str(ROOT)])
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": places}


@pytest.fixture
def cluster(tmp_path):
    """One node, started as an operator of a machine would; ended with all its processes."""
    command = [str(PROGRAMS / "ray"), "start", "--head", "--block", "--num-cpus=8", "--object-store-memory=314572800"]
    command += [f"--port={PORTS['gcs']}", f"--dashboard-port={PORTS['dashboard']}", "--include-dashboard=true"]
    command += [f"--dashboard-agent-listen-port={PORTS['agent']}", f"--ray-client-server-port={PORTS['client']}"]
    command += [f"--metrics-export-port={PORTS['metrics']}"]
    with (tmp_path / "ray.log").open("w") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, start_new_session=True)
        try:
            url, said = f"{DASHBOARD}/api/serve/applications/", (tmp_path / "ray.log").read_text
            wait(lambda: process.poll() is not None or answers(url), 180, said)
            assert process.poll() is None, said()
            yield
        finally:
            if process.poll() is None:
                # Engines remove what they keep in shared memory when they are stopped, not when they are killed.
                stop = [str(PROGRAMS / "serve"), "shutdown", "-y", "--address", DASHBOARD]
                subprocess.run(stop, env=environment(), capture_output=True, check=False)
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(timeout=120)
            remove_orphans()


def answers(url):
    try:
        return httpx.get(url, timeout=10).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def wait(condition, seconds, said):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, said()
        time.sleep(1)


def statuses():
    found = httpx.get(f"{DASHBOARD}/api/serve/applications/", timeout=60).json()["applications"]
    return {name: (application["status"], application["message"][-500:]) for name, application in found.items()}


@pytest.mark.timeout(START_SECONDS + 300)
def test_serve_deploy_of_a_manifest(cluster, models, tmp_path):
    text = (ROOT / "manifests" / "serve" / "cpu.yaml").read_text()
    for image, here in (("/opt/baton/models", models), ("/opt/baton", ROOT), ("/data", tmp_path)):
        text = text.replace(image, str(here))
    config = yaml.safe_load(text)
    config["http_options"] = {"host": "127.0.0.1", "port": PORTS["http"]}
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))

    deploy = [str(PROGRAMS / "serve"), "deploy", str(file), "--address", DASHBOARD]
    found = subprocess.run(deploy, env=environment(), capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    wait(lambda: {status for status, _ in statuses().values()} == {"RUNNING"}, START_SECONDS, statuses)

    note = {"documents": [{"id": "zebra", "text": "The zebra note has the code word ZEBRA-77."}]}
    httpx.post(f"{GATEWAY}/v1/collections/docs/documents", json=note, timeout=120).raise_for_status()
    question = {"messages": [{"role": "user", "content": "Which code word has the zebra note?"}], "stream": True}
    reply = httpx.post(f"{GATEWAY}/v1/chat/completions", json={**question, "max_tokens": 16}, timeout=300)
    assert reply.status_code == httpx.codes.OK
    assert events(reply.content)[-1] == b"[DONE]"
