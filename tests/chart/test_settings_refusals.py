"""What the applications would refuse at their start, the chart refuses before anything is installed."""

import pytest
import yaml

from app.config.chart.serve import serve_config
from app.config.chart.values import completed
from app.config.gateway import RESERVED_NAMES
from app.config.retrieval import SCHEMES
from app.errors import ConfigError
from scripts.helm_render import CHART, Refused, merged, shape_values

STARTER = yaml.safe_load((CHART / "files" / "starter.yaml").read_text())
PATTERN = {"name": "x", "pattern": "a", "category": "c"}


def profile(**values):
    return {"settings": {"profiles": {"default": values}}}


WRONG = {
    "deadline": ({"settings": {"limits": {"timeoutSeconds": 900}}}, "timeoutSeconds is 900", "maxTimeoutSeconds 600"),
    "limits of passages": ({"settings": {"limits": {"maxTopK": 8, "maxCandidates": 4}}}, "maxTopK is 8"),
    "limit over the retriever's": ({"settings": {"retriever": {"maxTopK": 8}}}, "limits.maxTopK is 64", "retriever"),
    "room for the answer": (
        {"settings": {"assembler": {"minAnswerTokens": 200, "defaultMaxTokens": 100}}},
        "minAnswerTokens is 200",
    ),
    "capacity of no model": ({"settings": {"modelCapacity": {"gpt": 3}}}, "modelCapacity names gpt", "smollm2"),
    "patterns of one name": (
        {"settings": {"guardrail": {"policies": {"default": {"patterns": [PATTERN, PATTERN]}}}}},
        "two patterns are called x",
    ),
    "reserved name": ({"settings": {"profiles": {"v1": {"model": "smollm2"}}}}, "settings.profiles.v1"),
    "name of the embedder": ({"settings": {"profiles": {"embedder": {"model": "smollm2"}}}}, "profiles.embedder"),
    "model called like the embedder": ({"models": {"embedder": shape_values("cpu")["models"]["smollm2"]}}, "embedder"),
    "more passages than candidates": (profile(retrieval={"topK": 25}), "retrieval.topK is 25", "candidates 24"),
    "passages over the limit": (profile(retrieval={"topK": 65, "candidates": 80}), "settings.limits.maxTopK of 64"),
    "candidates over the limit": (profile(retrieval={"candidates": 300}), "settings.limits.maxCandidates of 256"),
    "collections over the limit": (
        profile(retrieval={"collections": [f"c{number}" for number in range(9)]}),
        "retrieval.collections is 9",
        "maxCollections of 8",
    ),
    "answer over the limit": (profile(sampling={"maxTokens": 5000}), "sampling.maxTokens is 5000", "of 4096"),
    "choices over the limit": (profile(nCandidates=9), "nCandidates is 9", "settings.limits.maxN of 8"),
    "overlap": ({"pipeline": {"chunking": {"overlapTokens": 61}}}, "overlapTokens is 61", "sizeTokens 120"),
    "store of another kind": ({"pipeline": {"store": {"uri": "postgresql://a/b"}}}, "lancedb does not read", "s3://"),
    "two secrets of the store": (
        {"pipeline": {"store": {"secretEnv": "KEY", "secretFile": "/key"}}, "env": {"KEY": "x"}},
        "secretEnv and secretFile",
    ),
    "options of another store": (
        {"pipeline": {"store": {"kind": "qdrant", "uri": "http://q:6333", "storageOptions": {"region": "x"}}}},
        "storageOptions",
        "lancedb only",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_both_refuse_it(chart, case):
    change, *words = WRONG[case]
    values = merged(shape_values("cpu"), change)
    with pytest.raises(ConfigError):
        serve_config(completed(values, STARTER))
    with pytest.raises(Refused) as refused:
        chart.text(values)
    told = str(refused.value)
    assert [word for word in words if word not in told] == [], told


def test_both_know_the_same_names():
    text = (CHART / "templates" / "_validate_settings.tpl").read_text()
    assert all(f'"{name}"' in text for name in RESERVED_NAMES)
    for kind, schemes in SCHEMES.items():
        listed = " ".join(f'"{scheme}"' for scheme in schemes)
        assert f'"{kind}" (list {listed})' in text


def test_several_models_need_profiles(chart):
    values = shape_values("multi-model")
    del values["settings"]
    with pytest.raises(Refused, match=r"settings\.profiles is empty and there are 2 models"):
        chart.text(values)
