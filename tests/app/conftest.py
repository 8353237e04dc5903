"""Fixtures of the app scope: the small models, and one running Baton for the whole session."""

from pathlib import Path

import pytest

from tests.app.baton import ROOT, Baton


def pytest_collection_modifyitems(items):
    """Run what needs the running Baton last: until it starts, the other tests have both cores to themselves."""
    items.sort(key=lambda item: "baton" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of the small models, prepared once and shared with `make run`."""
    from app.ops.models import prepare_chat_model, prepare_embedder

    folder = ROOT / ".baton" / "models"
    prepare_chat_model(folder / "smollm2")
    prepare_embedder(folder / "e5-small")
    return folder


@pytest.fixture(scope="session")
def baton(models, tmp_path_factory):
    """A pipeline started as users start it, with an index of its own."""
    data = tmp_path_factory.mktemp("baton")
    (data / "models").symlink_to(models)
    before = set(Path("/dev/shm").iterdir())
    running = Baton(data)
    try:
        running.start()
        yield running
    finally:
        code = running.stop()
    assert code == 0, running.said
    assert "stopped" in running.said
    left = [path.name for path in set(Path("/dev/shm").iterdir()) - before if path.name.startswith("psm_")]
    assert left == [], "segments of the engine were left in shared memory"
