"""Serve's controller dies: what serves goes on, and the new controller knows every replica, engines included."""

import os
import signal

import httpx
import pytest

from tests.app.test_load import pids


def controller(baton):
    """Return the process id of the controller that lives; None while there is none."""
    answer = httpx.get(f"http://127.0.0.1:{baton.dashboard_port}/api/v0/actors", params={"detail": 1, "limit": 1000})
    actors = answer.json()["data"]["result"]["result"]
    alive = [actor["pid"] for actor in actors if actor["class_name"] == "ServeController" and actor["state"] == "ALIVE"]
    return alive[0] if alive else None


def replicas(baton):
    """Return the replicas as the controller knows them; None while it does not answer."""
    try:
        return pids(baton)
    except (httpx.HTTPError, KeyError):
        return None


@pytest.mark.timeout(300)
def test_a_new_controller_keeps_every_replica(baton):
    baton.chat("warm")
    before, old = pids(baton), controller(baton)
    os.kill(old, signal.SIGKILL)
    assert baton.chat("Say hello.", max_tokens=4).status_code == 200
    baton.wait_for(lambda: controller(baton) not in (None, old), 60, "another controller")
    baton.wait_for(lambda: replicas(baton) == before, 60, "the same replicas, known to it")
    assert baton.chat("Say hello.", max_tokens=4).status_code == 200
