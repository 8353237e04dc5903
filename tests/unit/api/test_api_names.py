"""Which profile and model answer: precedence, conflicts, unknown names, and the list of names."""

from __future__ import annotations

import pytest
from gateway_site import Site


@pytest.mark.parametrize(
    ("path", "profile", "model", "expected"),
    [
        (None, None, None, ("default", "smol")),
        (None, None, "smol", ("default", "smol")),
        (None, None, "tooled", ("default", "tooled")),
        (None, None, "docs", ("docs", "smol")),
        (None, None, "tools", ("tools", "tooled")),
        (None, "docs", None, ("docs", "smol")),
        (None, "docs", "smol", ("docs", "smol")),
        (None, "docs", "docs", ("docs", "smol")),
        ("docs", None, None, ("docs", "smol")),
        ("docs", None, "smol", ("docs", "smol")),
        ("docs", "docs", "docs", ("docs", "smol")),
    ],
)
async def test_names_are_resolved(
    site: Site, path: str | None, profile: str | None, model: str | None, expected: tuple[str, str]
) -> None:
    prefix = f"/{path}" if path else ""
    reply = await site.ask(f"{prefix}/v1/chat/completions", profile=profile, model=model)
    assert reply.status_code == 200, reply.text
    assert (site.job.profile, site.job.model) == expected
    assert reply.json()["model"] == expected[1]
    route = "/{profile}/v1/chat/completions" if path else "/v1/chat/completions"
    assert site.outcomes == [(route, 200, expected[0])]


@pytest.mark.parametrize(
    ("path", "profile", "model"),
    [
        ("docs", "shopping", None),
        ("docs", None, "shopping"),
        (None, "docs", "shopping"),
        (None, "docs", "tooled"),
        ("docs", None, "tooled"),
        (None, None, "embedder"),
        ("docs", "docs", "default"),
    ],
)
async def test_conflicts_are_refused(site: Site, path: str | None, profile: str | None, model: str | None) -> None:
    prefix = f"/{path}" if path else ""
    reply = await site.ask(f"{prefix}/v1/chat/completions", profile=profile, model=model)
    assert reply.status_code == (404 if model == "embedder" else 400)
    assert not site.pipeline.jobs


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"model": "no-such-model"}),
        ("/v1/chat/completions", {"profile": "no-such-model"}),
        ("/no-such-model/v1/chat/completions", {}),
    ],
)
async def test_unknown_names_are_404_and_echoed(site: Site, path: str, fields: dict[str, str]) -> None:
    reply = await site.ask(path, **fields)
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, "model_not_found")
    assert "no-such-model" in reply.json()["error"]["message"]
    assert reply.json()["error"]["message"].endswith(": GET /v1/models lists those there are.")
    assert site.outcomes[0][2] == ""


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "m" * 100_000])
async def test_odd_names_are_echoed_within_bounds(site: Site, name: str) -> None:
    reply = await site.ask(model=name)
    assert reply.status_code == 404
    assert len(reply.text) < 400


async def test_models_and_profiles_are_listed(site: Site) -> None:
    listed = (await site.client.get("/v1/models")).json()
    assert listed["object"] == "list"
    kinds = {entry["id"]: entry["kind"] for entry in listed["data"]}
    assert kinds == {
        "smol": "model", "tooled": "model", "default": "profile", "docs": "profile", "tools": "profile",
        "shopping": "profile", "embedder": "embedding",
    }  # fmt: skip
    assert all(entry["object"] == "model" and isinstance(entry["created"], int) for entry in listed["data"])
    docs = (await site.client.get("/docs/v1/models/docs")).json()
    assert (docs["model"], docs["retrieval"], docs["collections"], docs["default"]) == ("smol", True, ["probe"], False)
    unknown = await site.client.get("/v1/models/some/path")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("rest", ["", "/default", "/smol", "/nope"])
async def test_models_of_a_profile_that_does_not_exist_are_404(site: Site, rest: str) -> None:
    reply = await site.client.get(f"/nope/v1/models{rest}")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "profile")
    assert "'nope'" in error["message"]
    assert (await site.client.get("/docs/v1/models")).status_code == 200


async def test_settings_change_between_two_requests(site: Site) -> None:
    site.config = site.config.model_copy(update={"default_profile": "docs"})
    await site.ask()
    assert site.job.profile == "docs"
    site.limit(max_n=1)
    assert (await site.ask(n=2)).status_code == 400
