"""Right by default: what a method gives at the default tolerance is what it gives when it runs twice as long."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.methods import KIND, NAMES, data, make

from cofactor import FederatedBMF, FederatedKMeans, FederatedMF, FederatedNMF, kinds, run
from cofactor.engines.history import DONE
from cofactor.kinds.measure import Measure, overall
from cofactor.local import arrays
from cofactor.methods import catalog
from cofactor.methods.build import adapted
from cofactor.plan import ROUNDS, Plan

ROWS, FEATURES, RANK = (14, 22, 18, 16), 12, 3
ESTIMATORS = {"boolean": FederatedBMF, "ratings": FederatedMF, "clusters": FederatedKMeans}
JUDGED = [name for name in NAMES if make(name).rounds is None]
"""Methods that end by a rule; the others carry out a plan of their own."""
ONE_UPLOAD = {"oneshot", "consensus", "ipalm", "mur", "oneshot-lap", "boolean-oneshot"} | {
    *("asso", "grecond", "mebf", "zhang", "elbmf")
}
"""One round is all they have."""
PAID = {"dp-moments", "dp-range", "dp-nmf"}
"""What more rounds would cost is not theirs to spend."""
SCHEDULED = ["boolean-exact", "felb", "falb"]
"""Penalties grow over all rounds until factors are bits: twice as many are another schedule."""
ITERATED = ["dsanls", "mu", "hals", "anls-bpp"]
"""They have at most so many iterations, and say where these were too few."""


def clients(name):
    """Rows sorted by what most of them differ in, so that no client is like another."""
    Xs = data(KIND[name], ROWS, FEATURES)
    if KIND[name] in ("blocks", "ratings", "gaps"):
        return Xs
    X = arrays.stack(Xs)
    dense = X.toarray() if hasattr(X, "toarray") else X
    far = (dense - dense.mean(axis=0)) @ np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)[2][0]
    return [X[rows] for rows in np.split(np.argsort(far), np.cumsum(ROWS)[:-1])]


def error(method, Xs, plan, **more):
    kind = kinds.KINDS[method.traits.kind]
    out = run(method, Xs, plan, work=[Measure(kind, method)] * len(Xs), **more)
    return overall(kind, out.findings).error, out


def error_of(method, Xs, H):
    kind = kinds.KINDS[method.traits.kind]
    return overall(kind, [kind.tally(method, X, method.refit(X, H), H) for X in Xs]).error


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("name", JUDGED)
def test_the_default_tolerance_costs_no_more_than_two_percent(name, share):
    """Twice as many rounds give 2 % at most.

    A run that takes all rounds shows it by its first half, which costs nothing: if that is 4 % off at most, and what is
    left falls like one over the rounds or sooner, twice as many give half of it.
    """
    method, Xs, usual = make(name, RANK), clients(name), ESTIMATORS.get(KIND[name], FederatedNMF)()
    plan = Plan(usual.rounds, participation=share, stop=usual.tol, seed=1)
    (formed, limit, _), half = adapted(method, plan), []

    def look(line, shared):
        if line.round + 1 == limit // 2:
            half.append(formed.factor(shared))

    default, out = error(method, Xs, plan, callbacks=[look])
    if out.ended == "rounds":
        assert len(out.history) == limit
        assert error_of(method, Xs, half[0]) <= 1.04 * default + 1e-6
        return
    assert out.ended in DONE
    rounds = max(2 * len(out.history), math.ceil(ROUNDS / share))
    converged, whole = error(method, Xs, Plan(rounds, participation=share, seed=1))
    assert len(whole.history) >= len(out.history)
    assert default <= 1.02 * converged + 1e-6


def test_no_method_is_left_out_without_a_reason():
    assert set(NAMES) == {*JUDGED, *ONE_UPLOAD, *PAID, *SCHEDULED, *ITERATED}
    assert all(make(name).rounds == 1 for name in ONE_UPLOAD)
    assert PAID == {name for name in NAMES if KIND[name] == "private"}
    assert all(make(name).traits.iterates for name in ITERATED)


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_schedule_twice_as_long_gives_no_more_than_two_percent(name):
    Xs = clients(name)
    default, _ = error(make(name, RANK), Xs, Plan(seed=1))
    longer, out = error(make(name, RANK, rounds=2 * make(name, RANK).rounds), Xs, Plan(seed=1))
    assert len(out.history) == 2 * make(name, RANK).rounds
    assert default <= 1.02 * longer + 1e-6


@pytest.mark.parametrize("name", ITERATED)
def test_iterations_give_no_more_than_two_percent_or_say_that_they_were_too_few(name):
    Xs, usual = clients(name), catalog.make(name, RANK, shape=(sum(ROWS), FEATURES))
    default, out = error(usual, Xs, Plan(stop=FederatedNMF().tol, seed=1))
    done = len(out.history) // 2
    longer, _ = error(replace(usual, iterations=2 * done), Xs, Plan(seed=1))
    assert done == usual.iterations if out.ended == "iterations" else out.ended in DONE
    assert out.ended == "iterations" or default <= 1.02 * longer + 1e-6
