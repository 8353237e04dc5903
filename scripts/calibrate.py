"""Fits grounding and confidence on samples/calibration, writes app/answers/calibration.json and docs/calibration.png.

python scripts/calibrate.py --embedder FOLDER --chat-model FOLDER
"""

import argparse
import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pyarrow as pa
from calibration_plot import draw, expected_calibration_error
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_predict

from app.answers.confidence import SHIPPED, answer_features, sentence_features
from app.answers.grounding import gather_evidence, max_similarities
from app.answers.numbers import unsupported_in, values_in
from app.answers.references import REFERENCE_TEXTS
from app.answers.sentences import split_sentences
from app.config.answers import AssemblerConfig, ModelWindow
from app.config.embedder import EmbedderConfig
from app.embedders.factory import build_embedder
from app.messages import AssembleRequest, Message, Retrieved
from app.stages.assembler import Assembler

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "samples" / "calibration" / "answers.jsonl"
FOLDS = GroupKFold(5)
SENTENCE = ("mean", "low", "margin", "unknown_numbers")
ANSWER = {
    "both": ("grounding_logit", "mean_logprob", "min_logprob"),
    "grounding_only": ("grounding_logit",),
    "logprobs_only": ("mean_logprob", "min_logprob"),
}


def ground(rows, embedder):
    """Return the evidence of every sentence, per row; the passages of all rows are the candidates."""
    pool = list(dict.fromkeys(passage for row in rows for passage in row["passages"]))
    references = embedder.encode(REFERENCE_TEXTS, "passage", tokens=True)
    passages = embedder.encode(pool, "passage", tokens=True)
    for row in rows:
        sentences = [sentence.text for sentence in split_sentences(row["answer"], 64)]
        encoded = embedder.encode(sentences, "passage", tokens=True)
        best = max_similarities(encoded.tokens, passages.tokens, passages.offsets)
        chance = max_similarities(encoded.tokens, references.tokens, references.offsets)
        known = values_in(row["passages"])
        unknown = [unsupported_in(text, known)[1] for text in sentences]
        shown = [pool.index(passage) for passage in row["passages"]]
        yield gather_evidence(best, chance, encoded.offsets, shown, unknown)


def token_logprobs(rows, folder):
    """Return the chat model's log-probabilities of each answer's tokens, given the prompt the assembler builds."""
    import torch
    from transformers import AutoModelForCausalLM

    assembler = Assembler({"chat": ModelWindow(tokenizer=folder, context_tokens=8192)}, AssemblerConfig())
    assembler.start()
    tokenizer = assembler.tokenizer("chat")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = {}
    for row in rows:
        if row["question"] not in prompts:
            table = pa.table({"text": row["passages"], "source": ["sample"] * len(row["passages"])})
            request = AssembleRequest("chat", "", (Message("user", row["question"]),), 256)
            ids = tokenizer.encode(tokenizer.render(assembler.run(request, Retrieved(table, 4)).messages))
            with torch.inference_mode():
                prompts[row["question"]] = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        prompt, answer = prompts[row["question"]], torch.tensor([tokenizer.encode(row["answer"])])
        with torch.inference_mode():
            rest = model(answer, past_key_values=deepcopy(prompt.past_key_values)).logits[:, :-1]
        logprobs = torch.cat([prompt.logits, rest], dim=1).log_softmax(-1)
        yield logprobs[0, torch.arange(answer.shape[1]), answer[0]].tolist()


def fit(features, labels, groups, names):
    """Return the model as JSON and its cross-validated probabilities; no group is on both sides of a fold."""
    matrix = np.array([[row[name] for name in names] for row in features])
    estimator = LogisticRegression(C=100, max_iter=10_000)
    folded = cross_val_predict(estimator, matrix, labels, groups=groups, cv=FOLDS, method="predict_proba")[:, 1]
    estimator.fit(matrix, labels)
    weights = {name: round(float(weight), 4) for name, weight in zip(names, estimator.coef_[0], strict=True)}
    return {"intercept": round(float(estimator.intercept_[0]), 4), "weights": weights}, folded


def quality(labels, folded):
    """Return the cross-validated figures."""
    figures = {
        "brier": brier_score_loss(labels, folded),
        "ece": expected_calibration_error(labels, folded),
        "auc": roc_auc_score(labels, folded),
    }
    return {name: round(float(value), 3) for name, value in figures.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedder", required=True)
    parser.add_argument("--chat-model", required=True)
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "calibration.png")
    options = parser.parse_args()
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    embedder = build_embedder(EmbedderConfig(source=options.embedder))
    embedder.start()
    evidence = list(ground(rows, embedder))
    logprobs = list(token_logprobs(rows, options.chat_model))

    labels, groups = (np.array([row[key] for row in rows]) for key in ("grounded", "group"))
    counts = [len(found) for found in evidence]
    features = [sentence_features(item) for found in evidence for item in found]
    models, checks = {}, {}
    models["sentence"], folded = fit(features, np.repeat(labels, counts), np.repeat(groups, counts), SENTENCE)
    checks["sentence"] = quality(np.repeat(labels, counts), folded)
    grounding = [part.mean() for part in np.split(folded, np.cumsum(counts)[:-1])]
    answers = [answer_features(value, lps) for value, lps in zip(grounding, logprobs, strict=True)]
    curves = {}
    for name, names in ANSWER.items():
        models[name], curves[name] = fit(answers, labels, groups, names)
        checks[name] = quality(labels, curves[name])
    provenance = {
        "data": f"{ROWS.relative_to(ROOT)}, {len(rows)} answers ({int(labels.sum())} grounded), English and Chinese",
        "embedder": embedder.name,
        "logprobs": f"{Path(options.chat_model).name}, of the given answers after the assembler's prompt",
        "cross_validation": "5 folds, grouped by question",
    }
    options.out.write_text(json.dumps({"provenance": provenance, "quality": checks, "models": models}, indent=2) + "\n")
    draw(labels, curves, checks, options.plot)
    print(json.dumps(checks, indent=2))


if __name__ == "__main__":
    main()
