"""Pictures, drawn with matplotlib and without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cofactor.combine.align import Lap
from cofactor.records import RankScan
from cofactor.types import Array

INK, ACCENT, MUTED = "#22303c", "#0f766e", "#5b6b78"


def component_rows(path: Path, factors: dict[str, Array], shape: tuple[int, int], *, captions: Sequence[str]) -> Path:
    """Draw each factor as one row of pictures, its components in the order of the first factor's best match."""
    reference = next(iter(factors.values()))
    k = len(reference)
    figure = Figure(figsize=(0.72 * k + 2.4, 0.86 * len(factors) + 0.7), facecolor="white")
    axes = np.atleast_2d(figure.subplots(len(factors), k))
    for row, (name, H), caption in zip(axes, factors.items(), captions, strict=True):
        ordered = Lap()(reference, H) @ H
        for axis, component in zip(row, ordered, strict=True):
            _picture(axis, component.reshape(shape))
        row[0].text(-0.25, 0.62, name, transform=row[0].transAxes, ha="right", va="center", color=INK, weight="bold")
        row[0].text(-0.25, 0.28, caption, transform=row[0].transAxes, ha="right", va="center", color=MUTED, size=8)
    figure.suptitle(
        "Components of the shared factor, matched to the pooled ones", color=INK, x=0.02, ha="left", size=11
    )
    figure.subplots_adjust(
        left=2.05 / (0.72 * k + 2.4), right=0.99, top=1 - 0.5 / (0.86 * len(factors) + 0.7), bottom=0.02
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _picture(axis: Any, image: Array) -> None:
    axis.imshow(image, cmap="Greys", vmin=0, interpolation="nearest")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_color("#c9d3da")


def rank_scan(path: Path, scan: RankScan) -> Path:
    """Draw held-out error (with a band of one standard deviation) and stability against the rank."""
    ranks = np.array(scan.ranks)
    mean, spread, training = (np.array(a, float) for a in (scan.heldout_mean, scan.heldout_std, scan.training_error))
    figure = Figure(figsize=(8.4, 3.4), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2)
    left.fill_between(ranks, np.maximum(mean - spread, 0), mean + spread, color=ACCENT, alpha=0.15, linewidth=0)
    left.plot(ranks, mean, color=ACCENT, marker="o", markersize=3, label="held-out cells")
    left.plot(ranks, training, color=MUTED, linestyle="--", label="kept cells")
    left.set(xlabel="rank", ylabel="relative squared error", title="Error")
    for values, label, style in (
        (scan.seed_stability, "over seeds", "-"),
        (scan.client_stability, "over clients", ":"),
    ):
        right.plot(ranks, np.array(values, float), color=ACCENT, linestyle=style, label=label)
    right.set(xlabel="rank", ylabel="mean matched cosine", ylim=(0, 1.02), title="Stability")
    for axis in (left, right):
        axis.axvline(scan.suggestion, color=MUTED, linewidth=0.8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    figure.suptitle(f"Suggested rank {scan.suggestion}", x=0.01, ha="left", color=INK, size=11)
    figure.savefig(path, dpi=150)
    return path
