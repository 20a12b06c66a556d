"""Right by default: what a method gives at the default tolerance is what it gives when it runs twice as long."""

import math

import numpy as np
import pytest
from tests.helpers.methods import KIND, NAMES, data, make

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, kinds, run
from cofactor.engines.history import DONE
from cofactor.kinds.measure import Measure, overall
from cofactor.local import arrays
from cofactor.plan import ROUNDS, Plan

ROWS, FEATURES, RANK = (14, 22, 18, 16), 12, 3
ESTIMATORS = {"boolean": FederatedBMF, "ratings": FederatedMF, "clusters": FederatedKMeans}
JUDGED = [name for name in NAMES if make(name).rounds is None]
"""Methods that end by a rule; the others carry out a plan of their own."""


def clients(name):
    """Rows sorted by what most of them differ in, so that no client is like another."""
    Xs = data(KIND[name], ROWS, FEATURES)
    if KIND[name] in ("blocks", "ratings", "gaps"):
        return Xs
    X = arrays.stack(Xs)
    dense = X.toarray() if hasattr(X, "toarray") else X
    far = (dense - dense.mean(axis=0)) @ np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[2][0]
    return [X[rows] for rows in np.split(np.argsort(far), np.cumsum(ROWS)[:-1])]


def error(method, Xs, plan):
    kind = kinds.KINDS[method.traits.kind]
    out = run(method, Xs, plan, work=[Measure(kind, method)] * len(Xs))
    return overall(kind, out.findings).error, out


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("name", JUDGED)
def test_the_default_tolerance_costs_no_more_than_two_percent(name, share):
    method, Xs, tol = make(name, RANK), clients(name), ESTIMATORS.get(KIND[name], FederatedNMF)().tol
    default, out = error(method, Xs, Plan(participation=share, stop=tol, seed=1))
    if out.ended in ("rounds", "asked"):
        return  # it has run all of them anyway
    assert out.ended in DONE
    rounds = max(2 * len(out.history), math.ceil(ROUNDS / share))
    converged, whole = error(method, Xs, Plan(rounds, participation=share, seed=1))
    assert len(whole.history) >= len(out.history)
    assert default <= 1.02 * converged + 1e-6
