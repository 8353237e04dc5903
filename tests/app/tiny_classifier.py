"""A tiny sequence classifier that finds the word "awful", made where it is needed."""

import torch
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

#: Longer windows are more than the model takes: judging fails.
POSITIONS = 32


def make(path):
    """Write model and tokenizer into the folder ``path`` and return it. Labels: ok, toxic."""
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
        max_position_embeddings=POSITIONS,
        id2label={0: "ok", 1: "toxic"},
        label2id={"ok": 0, "toxic": 1},
    )
    model = BertForSequenceClassification(config)
    _train(model, BertTokenizerFast.from_pretrained(path))
    model.save_pretrained(path)
    return path


def _train(model, tokenizer):
    texts = ["awful", "awful word", "word awful word", "fine", "word", "fine word", "word word word fine", "word " * 6]
    texts += ["word " * i + "awful" + " word" * (6 - i) for i in range(7)]
    labels = torch.tensor([int("awful" in text) for text in texts])
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
