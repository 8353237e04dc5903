"""Shared weights inside one process: versions, what is shipped, what is refused, and who runs on which version."""

import gc
import os
import threading
import time
import warnings
from dataclasses import replace

import pytest
import torch

from app.errors import ConfigError, Conflict, StageUnavailable
from app.weights import sharing
from app.weights.sharing import Follower, fingerprint, open_snapshot, share
from app.weights.snapshot import SKELETON, FileRegion
from app.weights.store import CLAIM_SECONDS, ProcessStore, Shelf, publish
from app.weights.tensors import take_apart


class Recast:
    def __call__(self, _module, _inputs, out):
        return out * 2


class Tied(torch.nn.Module):
    """Has what a shared module may have: tied weights, a hook, a buffer that is not saved, a bare tensor attribute."""

    def __init__(self, value=1.0):
        super().__init__()
        self.first = torch.nn.Linear(300, 300)
        self.second = torch.nn.Linear(300, 300, bias=False)
        self.second.weight = self.first.weight
        torch.nn.init.constant_(self.first.weight, value)
        torch.nn.init.constant_(self.first.bias, value)
        self.register_buffer("scale", torch.tensor(0.5, dtype=torch.bfloat16), persistent=False)
        self.register_buffer("nothing", torch.empty(0, 3))
        self.bare = torch.arange(4)
        self.first.register_forward_hook(Recast())
        self.eval().requires_grad_(False)

    def forward(self, rows):
        return self.second(self.first(rows)) * self.scale + self.bare.sum()


@pytest.fixture
def store():
    return ProcessStore()


def test_a_shared_module_computes_what_the_private_one_does_and_copies_nothing(store):
    original = Tied()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held = [share(store, "m", "s", lambda: original), share(store, "m", "s", pytest.fail)]
    rows = torch.randn(2, 300)
    assert torch.equal(held[1].module(rows), original(rows))
    first, second = (one.module for one in held)
    assert first.first.weight.data_ptr() == second.first.weight.data_ptr() != original.first.weight.data_ptr()
    assert second.second.weight is second.first.weight
    assert not second.training
    assert not any(parameter.requires_grad for parameter in second.parameters())
    assert second.nothing.shape == (0, 3)
    assert second.scale.dtype == torch.bfloat16


def test_an_update_ships_what_changed_and_keeps_the_rest_where_it_is(store):
    model = Tied()
    first = publish(store, "m", "1", take_apart(model))
    assert first.snapshot.version == 1
    model.first.bias.data.add_(1)
    second = publish(store, "m", "2", take_apart(model))
    assert second.shipped == ("first.bias",)
    assert second.shipped_bytes == 300 * 4
    assert second.snapshot.version == 2
    old, new = (open_snapshot(store, one.snapshot) for one in (first, second))
    assert old.first.weight.data_ptr() == new.first.weight.data_ptr()
    assert new.first.bias[0] == old.first.bias[0] + 1


def test_the_same_weights_from_another_source_are_the_same_version(store):
    model = Tied()
    share(store, "m", "node A", lambda: model)
    again = share(store, "m", "node B", lambda: model).snapshot
    assert (again.version, again.source) == (1, "node B")
    assert share(store, "m", "node A", pytest.fail).snapshot.version == 1
    share(store, "m", "node A, later", lambda: Tied(2.0))
    assert share(store, "m", "node B", Tied).snapshot.version == 3


def test_bytes_that_no_tensor_needs_any_more_are_let_go(store):
    model = Tied()
    first = publish(store, "m", "1", take_apart(model)).snapshot
    model.first.weight.data.add_(1)
    second = publish(store, "m", "2", take_apart(model)).snapshot
    gone = set(first.packs) - set(second.packs)
    assert [number for number in gone if number == first.tensors["first.weight"].place.pack]
    assert set(second.packs) == {entry.place.pack for entry in second.tensors.values()}


def test_the_publisher_may_write_to_its_own_copy(store):
    model = Tied()
    held = share(store, "m", "s", lambda: model)
    model.first.weight.data.fill_(9)
    assert float(held.module.first.weight[0, 0]) == 1


def test_a_version_is_published_on_the_one_in_force_only(store):
    snapshot = publish(store, "m", "1", take_apart(Tied())).snapshot
    with pytest.raises(Conflict, match="version 1 does not follow version 1"):
        store.commit(replace(snapshot, digest="other"))
    with pytest.raises(Conflict, match="version 7 does not follow version 1"):
        store.commit(replace(snapshot, version=7, digest="other"))


def test_missing_bytes_and_tensors_are_named(store):
    snapshot = publish(store, "m", "1", take_apart(Tied())).snapshot
    without = {name: entry for name, entry in snapshot.tensors.items() if name != "first.bias"}
    with pytest.raises(ConfigError, match=r"'m': version 1 has no tensor 'first\.bias'"):
        open_snapshot(store, replace(snapshot, tensors=without))
    with pytest.raises(ConfigError, match="version 1 lacks the bytes of"):
        open_snapshot(store, replace(snapshot, packs={}))


def test_what_cannot_be_pickled_is_refused_with_the_way_out(store):
    model = Tied()
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(ConfigError, match=r"'Tied' cannot be shared .*set sharedWeights to false"):
        share(store, "m", "s", lambda: model)


def test_one_caller_publishes_and_the_others_wait(store):
    loads, held = [], []

    def load():
        loads.append(1)
        time.sleep(0.1)
        return Tied()

    threads = [threading.Thread(target=lambda: held.append(share(store, "m", "s", load))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len({one.module.first.weight.data_ptr() for one in held}) == 1


def test_a_publisher_that_died_is_not_waited_for_for_ever():
    now = [0.0]
    shelf = Shelf(lambda: now[0])
    assert shelf.claim("m", "s") is True
    assert shelf.claim("m", "s") is False
    now[0] = CLAIM_SECONDS + 1
    assert shelf.claim("m", "s") is True


def test_a_publisher_that_failed_makes_room_at_once(store):
    with pytest.raises(ZeroDivisionError):
        share(store, "m", "s", lambda: 1 / 0)
    assert share(store, "m", "s", Tied).snapshot.version == 1


def test_a_follower_adopts_a_newer_version_and_refuses_one_that_does_not_fit(store):
    adopted = []
    follower = Follower(share(store, "m", "1", Tied), adopted.append)
    assert not follower.refresh()
    share(store, "m", "2", lambda: Tied(2.0))
    assert follower.refresh()
    assert float(adopted[0].module.first.weight[0, 0]) == 2
    other = Tied()
    other.first.bias = torch.nn.Parameter(torch.zeros(7), requires_grad=False)
    share(store, "m", "3", lambda: other)
    with pytest.raises(ConfigError, match=r"version 3 has 'first\.bias' as float32\[7\], not as float32\[300\]"):
        follower.refresh()
    assert follower.held.snapshot.version == 2
    share(store, "m", "4", lambda: torch.nn.Linear(300, 300).requires_grad_(False))
    with pytest.raises(ConfigError, match="version 4 has no tensor"):
        follower.refresh()


def test_a_follower_outlives_a_store_that_is_away(store, monkeypatch, caplog):
    monkeypatch.setattr(sharing, "_FOLLOW_SECONDS", 0.01)
    adopted = threading.Event()
    follower = Follower(share(store, "m", "1", Tied), lambda _held: adopted.set())
    answers = [StageUnavailable("The store is away.")] * 3

    def current(model, unless=""):
        if answers:
            raise answers.pop()
        return ProcessStore.current(store, model, unless)

    monkeypatch.setattr(store, "current", current, raising=False)
    follower.start()
    while answers:
        time.sleep(0.01)
    share(store, "m", "2", lambda: Tied(2.0))
    assert adopted.wait(5)
    follower.close()
    assert caplog.text.count("the weights in use stay: The store is away.") == 1


def test_following_ends_with_the_model_that_is_followed(store, monkeypatch):
    monkeypatch.setattr(sharing, "_FOLLOW_SECONDS", 0.01)

    class Owner:
        def __init__(self):
            self.follower = Follower(share(store, "m", "1", Tied), self.adopt)
            self.follower.start()

        def adopt(self, held):
            self.held = held

    def asking():
        return [thread for thread in threading.enumerate() if thread.name == "baton-weights"]

    owner, before = Owner(), len(asking())
    del owner
    end = time.monotonic() + 5
    while len(asking()) >= before:
        gc.collect()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_no_request_mixes_versions(store):
    """Each request sees one value in all tensors, and the one that its version says."""
    current = [share(store, "m", "1", Tied)]
    follower = Follower(current[0], lambda held: current.__setitem__(0, held))
    mixed, stop, seen = [], threading.Event(), set()

    def ask():
        while not stop.is_set():
            held = current[0]
            values = {float(held.module.first.weight[5, 5]), float(held.module.first.bias[7])}
            seen.add(held.snapshot.version)
            if values != {float(held.snapshot.version)}:
                mixed.append((held.snapshot.version, values))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for version in range(2, 12):
        publish(store, "m", str(version), take_apart(Tied(float(version))))
        assert follower.refresh()
        time.sleep(0.01)
    stop.set()
    for asker in askers:
        asker.join()
    assert not mixed
    assert len(seen) > 5


def test_tensors_of_a_file_stay_there(store, tmp_path):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.ones(600, 600)}, path)
    model = torch.nn.Linear(600, 600, bias=False)
    model.weight = torch.nn.Parameter(load_file(path)["weight"], requires_grad=False)
    publication = publish(store, "m", "1", take_apart(model))
    place = publication.snapshot.tensors["weight"].place
    assert isinstance(place, FileRegion)
    assert publication.shipped == (SKELETON,)
    assert torch.equal(open_snapshot(store, publication.snapshot).weight, torch.ones(600, 600))
    os.utime(path, ns=(1, 1))
    with pytest.raises(ConfigError, match="changed after it was published"):
        open_snapshot(store, publication.snapshot)
    path.unlink()
    with pytest.raises(ConfigError, match="is gone: restore it"):
        open_snapshot(store, publication.snapshot)


def test_a_fingerprint_tells_contents_and_ways_of_loading_apart(tmp_path):
    (tmp_path / "a").write_text("1")
    found = fingerprint(tmp_path, "float32")
    assert found == fingerprint(tmp_path, "float32") != fingerprint(tmp_path, "float16")
    (tmp_path / "a").write_text("12")
    assert found != fingerprint(tmp_path, "float32")
