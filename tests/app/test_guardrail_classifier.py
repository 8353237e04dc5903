"""The classifier rule with a real model: a tiny one, made here, that finds the word "awful"."""

import shutil
import time

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

from app.config.guardrail import GuardrailConfig
from app.errors import ConfigError
from app.messages import JudgeRequest
from app.stages.guardrail import Guardrail


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("classifier")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "awful", "fine", "word"]
    (path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    BertTokenizerFast(str(path / "vocab.txt")).save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        id2label={0: "ok", 1: "toxic"},
        label2id={"ok": 0, "toxic": 1},
    )
    model = BertForSequenceClassification(config)
    train(model, BertTokenizerFast.from_pretrained(path))
    model.save_pretrained(path)
    return path


def train(model, tokenizer):
    texts = ["awful", "awful word", "word awful word", "fine", "word", "fine word", "word word word fine", "word " * 6]
    texts += ["word " * i + "awful" + " word" * (6 - i) for i in range(7)]
    labels = torch.tensor([int("awful" in text) for text in texts])
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()


def build(folder, **rule):
    raw = {
        "policies": {"default": {"classifier": {"path": str(folder), "labels": ["toxic"], "windowTokens": 8, **rule}}}
    }
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
