"""The classifier rule with a real model: a tiny one, made here, that finds the word "awful"."""

import shutil
import time

import pytest
import torch
from transformers import BertForSequenceClassification

from app.config.guardrail import GuardrailConfig
from app.errors import ConfigError
from app.messages import JudgeRequest
from app.stages.guardrail import Guardrail
from tests.app.tiny_classifier import POSITIONS, make


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("classifier"))


def build(folder, on_error="fail_closed", **rule):
    classifier = {"path": str(folder), "labels": ["toxic"], "windowTokens": 8, **rule}
    raw = {"policies": {"default": {"classifier": classifier, "onError": on_error}}}
    stage = Guardrail(GuardrailConfig.parse(raw, "guardrail"))
    stage.start()
    return stage


def test_a_long_text_is_judged_in_windows(folder):
    stage = build(folder)
    texts = ("fine word", "awful", "word " * 100 + "awful" + " word" * 100, "word " * 200, "")
    verdict = stage.run(JudgeRequest("input", texts))
    assert verdict.action == "block"
    assert [finding.text_index for finding in verdict.findings] == [1, 2]


def test_a_wrong_path_or_label_is_named(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"classifier: cannot load the classifier .*nothing-here"):
        build(tmp_path / "nothing-here")
    with pytest.raises(ConfigError, match=r"classifier\.labels: the classifier has no label 'bad'"):
        build(folder, labels=["bad"])


def test_a_text_that_the_model_cannot_take_fails_as_the_policy_says(folder):
    """As when the dashboards' scrape is collected: windows longer than the model's positions."""
    stage = build(folder, windowTokens=8 * POSITIONS, on_error="fail_open")
    assert stage.run(JudgeRequest("input", ("fine word",))).failed_open is False
    assert stage.run(JudgeRequest("input", ("word " * 4 * POSITIONS,))).failed_open is True


def test_stages_share_one_copy_of_the_classifier_and_follow_its_files(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    request = JudgeRequest("input", ("fine word", "awful"))
    stages = [build(tmp_path / "model", sharedWeights=True) for _ in range(2)]
    assert all([found.text_index for found in stage.run(request).findings] == [1] for stage in stages)
    first, second = (stage._parts.classifiers.popitem()[1] for stage in stages)
    weights = [one._model.classifier.weight for one in (first, second)]
    assert weights[0].data_ptr() == weights[1].data_ptr()

    model = BertForSequenceClassification.from_pretrained(tmp_path / "model")
    model.classifier.bias.data.copy_(torch.tensor([9.0, -9.0]))
    model.save_pretrained(tmp_path / "model")
    third = build(tmp_path / "model", sharedWeights=True)
    assert not third.run(request).findings
    end = time.monotonic() + 10
    while stages[0].run(request).findings or stages[1].run(request).findings:
        assert time.monotonic() < end, "the others did not follow"
        time.sleep(0.1)


def test_only_a_folder_can_be_shared():
    with pytest.raises(ConfigError, match=r"classifier\.sharedWeights needs a folder"):
        build("/nothing-here", sharedWeights=True)
