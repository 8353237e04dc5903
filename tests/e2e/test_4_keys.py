"""API keys are turned on while the release serves, rotated by a changed Secret, and `helm test` has one of its own."""

import httpx
import pytest

from app.keys.file import new_secret
from tests.e2e.keys import keys_file, write_secret
from tests.e2e.kube import RELEASE, cluster_name, helm, pods, restarts, wait_for

pytestmark = pytest.mark.core

#: The kubelet looks at Secrets once a minute or so, and from a cache.
SECRET_SECONDS = 240


@pytest.fixture
def closed(release, client_secret):
    """The release with keys on; off again afterwards, with the first key alone in its file."""
    release.upgrade({"settings": {"auth": {"enabled": True}}}, wait=False)
    wait_for("a closed gateway", lambda: _status(release) == 401, 180)
    yield release
    write_secret("baton-keys", "keys.yaml", keys_file(indexer=client_secret))
    release.upgrade(wait=False)
    wait_for("an open gateway", lambda: _status(release) == 200, 180)
    release.wait()


def _status(release, secret=""):
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    try:
        return release.http.get("/v1/models", headers=headers).status_code
    except httpx.HTTPError:
        return 0


def test_keys_close_the_gateway_and_a_changed_secret_rotates_them(closed, client_secret):
    before = (cluster_name(), [pod["metadata"]["uid"] for pod in pods()], restarts())
    assert closed.chat("hi").status_code == 401
    assert closed.http.get("/readyz").status_code == 200
    assert "Baton" in closed.http.get("/").text
    assert _status(closed, client_secret) == 200

    fresh = new_secret()
    write_secret("baton-keys", "keys.yaml", keys_file(indexer=client_secret, fresh=fresh))
    wait_for("the new key in force", lambda: _status(closed, fresh) == 200, SECRET_SECONDS)
    write_secret("baton-keys", "keys.yaml", keys_file(indexer=client_secret))
    wait_for("the new key revoked", lambda: _status(closed, fresh) == 401, SECRET_SECONDS)

    said = helm("test", RELEASE, "--timeout", "6m", seconds=420, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    assert (cluster_name(), [pod["metadata"]["uid"] for pod in pods()], restarts()) == before
