"""Means and variances from sums over clients, and which features vary most for their mean."""

from __future__ import annotations

import warnings

import numpy as np

from cofactor.engines.totals import Sums
from cofactor.local.columns import column_sums, columns_of
from cofactor.types import Array, Data

FLAVOURS = ("seurat", "cell_ranger")
NORMAL = 0.6744897501960817
"""The median absolute deviation of a normal variable of deviation 1."""


TIE = 1e-9
"""Dispersions that differ by less than this share are the same."""


def present(data: Data) -> Array:
    """Return the rows of a client for every feature (m): 0 where it lacks one."""
    rows = np.zeros(data.shape[1])
    rows[columns_of(data)] = data.shape[0]
    return rows


def moments_schema(n_features: int) -> dict[str, tuple[int, ...]]:
    """Shapes of :func:`moments`."""
    return dict.fromkeys(("rows", "sums", "squares"), (n_features,))


def moments(data: Data) -> dict[str, Array]:
    """Rows, sums and sums of squares of every feature."""
    total, squares = column_sums(data)
    return {"rows": present(data), "sums": total, "squares": squares}


def mean_variance(sums: Sums) -> tuple[Array, Array]:
    """Mean and variance (of a sample: divided by n - 1) of every feature."""
    n = np.maximum(sums["rows"], 1)
    mean = sums["sums"] / n
    rest = sums["squares"] - n * mean**2
    return mean, np.where(rest > 1e-12 * sums["squares"], rest, 0) / np.maximum(n - 1, 1)


def most_variable(mean: Array, variance: Array, top: int, *, flavour: str, bins: int = 20) -> Array:
    """Return a mask (m) of the ``top`` features, with those that tie with the last: scanpy's choice on pooled rows.

    Ties are so up to rounding: two features alone in a bin are 1 / sqrt(2) above and below its mean, in bits that
    depend on the order of sums, and so on how rows are stored and split over clients.
    """
    found = dispersions(mean, variance, flavour=flavour, bins=bins)
    known = np.sort(found[~np.isnan(found)])[::-1]
    if not known.size:
        return np.zeros(len(found), bool)
    if known.size < min(top, len(found)):
        text = f"hvg: {top} features were asked for, and only {known.size} vary among others of their mean."
        warnings.warn(text, UserWarning, stacklevel=2)
    last = known[min(top, known.size) - 1]
    least = last - TIE * abs(last) if np.isfinite(last) else last
    return np.nan_to_num(found, nan=-np.inf, posinf=np.inf, neginf=-np.inf) >= least


def dispersions(mean: Array, variance: Array, *, flavour: str, bins: int = 20) -> Array:
    """Normalized dispersion of every feature (m); NaN where it has none.

    ``variance / mean`` minus the centre and over the spread of features in the same bin of means: mean and deviation
    of logarithms in equal bins ("seurat", Satija et al. 2015), or median and median absolute deviation in bins of
    equal numbers ("cell_ranger", Zheng et al. 2017).
    """
    mean = np.where(mean == 0, 1e-12, mean)
    ratio = variance / mean
    if flavour == "seurat":
        ratio, mean = np.log(np.where(ratio == 0, np.nan, ratio)), np.log1p(mean)
        edges = _equal_edges(mean, bins)
    else:
        inner = np.percentile(mean, np.arange(10, 105, 5))
        edges = np.array([-np.inf, *np.unique(inner), np.inf])
    bin_of = np.searchsorted(edges, mean, side="left")
    out = np.full(len(mean), np.nan)
    for b in np.unique(bin_of):
        here = bin_of == b
        centre, spread = (_mean_deviation if flavour == "seurat" else _median_spread)(ratio[here])
        with np.errstate(divide="ignore", invalid="ignore"):
            out[here] = (ratio[here] - centre) / spread
    return out


def _equal_edges(values: Array, bins: int) -> Array:
    """Cut the range of values into equal parts; the lowest edge lies a little below, so that it belongs to a bin."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - (0.001 * abs(low) or 0.001), high + (0.001 * abs(high) or 0.001)
        return np.linspace(low, high, bins + 1)
    edges = np.linspace(low, high, bins + 1)
    edges[0] -= 0.001 * (high - low)
    return edges


def _mean_deviation(values: Array) -> tuple[float, float]:
    """Return mean and deviation; a feature alone in its bin comes out as 1."""
    known = values[~np.isnan(values)]
    if known.size > 1:
        return float(known.mean()), float(known.std(ddof=1))
    return 0.0, float(known[0]) if known.size else np.nan


def _median_spread(values: Array) -> tuple[float, float]:
    centre = float(np.median(values))
    return centre, float(np.median(np.abs(values - centre))) / NORMAL
