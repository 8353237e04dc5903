import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from app.ops import preload


def hub(monkeypatch, outcome):
    asked = []

    def download(model, allow_patterns):
        asked.append(model)
        if isinstance(outcome, Exception):
            raise outcome
        return f"/cache/{model}"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return asked


def test_every_model_is_fetched(monkeypatch, capsys):
    asked = hub(monkeypatch, None)
    assert preload.main(["a/b", "c/d"]) == 0
    assert asked == ["a/b", "c/d"]
    assert "c/d lies in /cache/c/d" in capsys.readouterr().out


RESPONSE = httpx.Response(403, request=httpx.Request("GET", "http://hub"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (GatedRepoError("gated", response=RESPONSE), "asks for consent"),
        (RepositoryNotFoundError("none", response=RESPONSE), "correct the id"),
        (HfHubHTTPError("no", response=RESPONSE), "answered 403"),
        (OSError(28, "No space left on device"), "is there room?"),
        (httpx.ConnectError("no route"), "HF_ENDPOINT"),
    ],
)
def test_what_hinders_it_is_told(monkeypatch, capsys, fault, words):
    asked = hub(monkeypatch, fault)
    assert preload.main(["a/b", "c/d"]) == 1
    assert asked == ["a/b"]
    told = capsys.readouterr().err
    assert words in told
    assert "a/b" in told
