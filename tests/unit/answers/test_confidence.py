import json
import math

import pytest

from app.answers.confidence import SHIPPED, Calibration, Logistic, answer_features
from app.answers.grounding import Evidence
from app.errors import ConfigError


@pytest.fixture(scope="module")
def shipped():
    return Calibration.load()


def test_a_logistic_model_is_the_formula():
    model = Logistic(0.5, {"a": 2.0})

    assert model({"a": 1.0, "other": 9.0}) == pytest.approx(1 / (1 + math.exp(-2.5)))
    assert 0 < model({"a": -1e9}) < model({"a": 1e9}) < 1


def test_the_shipped_calibration_says_where_it_comes_from():
    raw = json.loads(SHIPPED.read_text("utf-8"))

    assert {"data", "embedder", "logprobs", "cross_validation"} <= raw["provenance"].keys()
    assert raw["quality"]["both"]["brier"] < 0.25, "no better than a coin"


def test_better_evidence_gives_more_grounding(shipped):
    near = Evidence(mean=0.93, low=0.9, background=0.75, unknown_numbers=0, row=0)
    far = Evidence(mean=0.76, low=0.72, background=0.74, unknown_numbers=0, row=0)
    invented = Evidence(mean=0.93, low=0.9, background=0.75, unknown_numbers=1, row=0)

    assert shipped.ground_sentence(near) > 0.5 > shipped.ground_sentence(far)
    assert shipped.ground_sentence(invented) < 0.5


def test_confidence_rises_with_grounding_and_works_with_either_source(shipped):
    logprobs = (-0.2, -0.9)

    assert shipped.confidence(0.9, logprobs) > shipped.confidence(0.1, logprobs)
    assert shipped.confidence(0.9, ()) > shipped.confidence(0.1, ())
    assert 0 <= shipped.confidence(None, logprobs) <= 1
    assert shipped.confidence(None, ()) is None


def test_extreme_inputs_stay_finite():
    features = answer_features(1.0, (float("-inf"), -9999.0))

    assert all(math.isfinite(value) for value in features.values())
    assert features["min_logprob"] == -20


@pytest.mark.parametrize("content", ["{", "{}", '{"models": {"sentence": 1}}'])
def test_a_broken_file_is_named(tmp_path, content):
    file = tmp_path / "calibration.json"
    file.write_text(content, "utf-8")
    with pytest.raises(ConfigError, match=r"calibration\.json"):
        Calibration.load(file)
