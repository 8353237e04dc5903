"""Draws reliability and histogram of calibrated probabilities."""

import matplotlib as mpl

mpl.use("Agg")
import numpy as np
from matplotlib import pyplot as plt

TITLES = {"both": "grounding and logprobs", "grounding_only": "grounding only", "logprobs_only": "logprobs only"}
BINS = 5


def _bins(labels, probabilities):
    """Yield (mean probability, share of grounded answers, count) of bins that hold equally many answers."""
    for part in np.array_split(np.argsort(probabilities), BINS):
        yield probabilities[part].mean(), labels[part].mean(), len(part)


def expected_calibration_error(labels, probabilities):
    """Return the mean distance between stated and found probability, over bins of equal size."""
    parts = list(_bins(labels, probabilities))
    return sum(abs(stated - found) * count for stated, found, count in parts) / len(labels)


def draw(labels, curves, checks, path):
    """Write the picture: per model the reliability curve above and the histogram below."""
    figure, axes = plt.subplots(
        2, len(curves), figsize=(11, 5.6), sharex=True, gridspec_kw={"height_ratios": [3, 1.3]}, layout="constrained"
    )
    for (upper, lower), (name, probabilities) in zip(axes.T, curves.items(), strict=True):
        stated, found, count = (np.array(column) for column in zip(*_bins(labels, probabilities), strict=True))
        upper.plot([0, 1], [0, 1], color="0.7", linestyle="--", label="perfect")
        error = np.sqrt(found * (1 - found) / count)
        upper.errorbar(
            stated, found, error, marker="o", capsize=3, color="tab:blue", label="bins of equal size, ±1 s.e."
        )
        check = checks[name]
        upper.set_title(f"{TITLES[name]}\nBrier {check['brier']:.3f}  ECE {check['ece']:.3f}  AUC {check['auc']:.2f}")
        upper.set(ylim=(-0.05, 1.05), xlim=(0, 1))
        edges = np.linspace(0, 1, 11)
        parts = [probabilities[labels], probabilities[~labels]]
        lower.hist(parts, edges, stacked=True, color=["tab:green", "tab:orange"], label=["grounded", "not grounded"])
        lower.set_xlabel("confidence (cross-validated)")
    axes[0][0].set_ylabel("share that is grounded")
    axes[1][0].set_ylabel("answers")
    axes[0][0].legend(loc="upper left", fontsize=8)
    axes[1][0].legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=110)
