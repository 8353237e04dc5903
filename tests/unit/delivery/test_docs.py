"""The commands of docs/models.md and of the README do what is said, from a hub and a web server of our own."""

import os
import re
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from app.testing.hub import FakeHub

ROOT = Path(__file__).parents[3]
CACHED, OFFLINE, FOLDERS = re.findall(
    r"^```sh\n(.*?)^```", (ROOT / "docs" / "models.md").read_text("utf-8"), re.M | re.S
)
(SHORT,) = re.findall(
    r"^```shell\n(\S+ -m app\.ops\.models .*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S
)
MODEL = "BAAI/bge-m3"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def run(block, environment):
    done = subprocess.run(
        f"set -e\n{block}",
        shell=True,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_model_is_pulled_verified_listed_and_found_offline_with_nobody_asked(tmp_path):
    """In processes of their own, with the environment of a pod."""
    with FakeHub({MODEL: {"config.json": b"{}", "model.safetensors": b"w" * 2_000_000}}) as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(tmp_path / "hub")}
        code, _, errors = run(OFFLINE, environment)
        assert (code, hub.requests) == (1, [])
        assert "does not lie whole in the cache" in errors
        code, told, errors = run(CACHED, environment)
        assert (code, errors) == (0, "")
        lines = told.splitlines()
        assert f"{MODEL}: 2 files are as they came" in lines
        assert re.fullmatch(rf"{MODEL} +2\.0 MB  {hub.commit(MODEL)[:12]}  whole", lines[-1])
        code, told, errors = run(SHORT, environment)
        assert (code, errors) == (0, "")
        assert told.splitlines()[-2:] == lines[-2:]
        asked = len(hub.requests)
        code, told, errors = run(OFFLINE, environment)
        assert (code, errors, len(hub.requests)) == (0, "", asked)
        assert told.splitlines()[-1] == f"{MODEL}: 2 files are as they came"


def test_folders_of_this_machine_and_of_the_web(tmp_path):
    (tmp_path / "otter").mkdir()
    (tmp_path / "otter" / "model.safetensors").write_bytes(b"w" * 2_000_000)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    block = FOLDERS.replace("./otter", str(tmp_path / "otter")).replace("/srv/models", str(tmp_path))
    block = block.replace("https://files.example.com", f"http://127.0.0.1:{server.server_port}")
    block = block.replace(f"{tmp_path}/otter --out {tmp_path}/otter\n", f"{tmp_path}/otter --out {tmp_path}/copy\n")
    try:
        code, told, errors = run(block, {})
    finally:
        server.shutdown()
        server.server_close()
    assert (code, errors) == (0, "")
    assert told.splitlines()[-1].endswith("/otter: 1 files are as they came")
    assert (tmp_path / "otter-2" / "model.safetensors").stat().st_size == 2_000_000
