"""Averaging: one client is plain alternation, and published methods are settings of one method."""

import numpy as np
import pytest

from cofactor import run
from cofactor.combine.align import Lap
from cofactor.local import updates
from cofactor.local.stats import for_codes, for_factor
from cofactor.method import SERVER, rng
from cofactor.methods import catalog
from cofactor.methods.averaged import Averaged
from cofactor.plan import Stop


def plain_gradient(X, W, H, steps):
    """Projected gradient in turn, with the constants of section 1: L_W = |H H^T|_2, L_H = |W^T W|_2."""
    for _ in range(steps):
        W = np.maximum(W - (W @ H - X) @ H.T / np.linalg.norm(H @ H.T, 2), 0)
        H = np.maximum(H - W.T @ (W @ H - X) / np.linalg.norm(W.T @ W, 2), 0)
    return W, H


def unit(W, H):
    norms = np.linalg.norm(H, axis=1)
    return W * norms, H / norms[:, None]


def first_codes(method, X):
    shared = method.start(X.shape[1], rng(0, SERVER, -1))
    local = method.join(X, shared.broadcast(), 0, rng(0, 0, -1))
    return local.codes, local.memory["factor"]


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
@pytest.mark.parametrize("common_start", [True, False])
def test_one_client_is_plain_alternation(name, common_start, clients):
    X = clients[0]
    method = catalog.make(name, 3, sweeps=7, common_start=common_start, anchor=0.0)
    result = run(method, [X], rounds=5)
    W, H = first_codes(method, X)
    for line in result.history:
        W, H = unit(*plain_gradient(X, W, H, 7))
        assert line.loss == pytest.approx(0.5 * np.sum((X - W @ H) ** 2), rel=1e-9)
    np.testing.assert_allclose(result.factor, H, atol=1e-10)


@pytest.mark.parametrize("name", updates.catalog())
def test_one_client_alternates_any_update(name, clients):
    X, update = clients[0], updates.catalog()[name]
    method = Averaged(3, update, sweeps=4)
    result = run(method, [X], rounds=1)
    W, H = first_codes(method, X)
    F, W_old, F_old = H.T, None, None
    for _ in range(4):
        W, W_old = update(W, for_codes(X, F.T), 0, W_old), W
        F, F_old = update(F, for_factor(X, W), 0, F_old), F
    np.testing.assert_allclose(result.factor, unit(W, F.T)[1], atol=1e-10)


@pytest.mark.parametrize("start", [True, False])
def test_fedprox_without_anchor_is_fedavg_to_the_bit(start, clients):
    average = run(catalog.make("fedavg", 3, common_start=start), clients, rounds=4)
    proximal = run(catalog.make("fedprox", 3, common_start=start, anchor=0.0), clients, rounds=4)
    np.testing.assert_array_equal(average.factor, proximal.factor)
    assert [r.loss for r in average.history] == [r.loss for r in proximal.history]


def test_fedprox_anchor_holds_the_factor_at_the_broadcast(clients):
    start = run(catalog.make("oneshot", 3), clients).factor[::-1] + 0.1
    start = start / np.linalg.norm(start, axis=1, keepdims=True)
    moved = [
        np.linalg.norm(run(catalog.make("fedprox", 3, anchor=a), clients, rounds=1, start=start).factor - start)
        for a in (0.0, 0.1, 1.0, 100.0)
    ]
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.1 * moved[0]


def test_fnmf_with_one_client_and_no_pull_is_fedavg(clients):
    X = clients[:1]
    plain = run(catalog.make("fedavg", 3, sweeps=5), X, rounds=4)
    aligned = run(catalog.make("fnmf-lap", 3, sweeps=5, gamma=0.0), X, rounds=4)
    np.testing.assert_allclose(aligned.factor, plain.factor, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in catalog.names() if n.startswith("fnmf")])
def test_the_order_of_a_clients_components_does_not_matter(name, clients, matched_cosines):
    """Independent starts put components in any order; FNMF must still agree with itself on equal clients."""
    X = clients[1]
    result = run(catalog.make(name, 3), [X, X, X], rounds=6)
    alone = run(catalog.make("exact", 3, start="random"), [X], rounds=300)
    assert matched_cosines(result.factor, alone.factor).min() > 0.98


def test_aligned_uploads_make_the_mean_enough(clients, matched_cosines):
    """The secure variant: clients align their own factor, the server sees the sum only."""
    secure = Averaged(3, sweeps=50, align=Lap(), aligned_upload=True, common_start=False)
    assert secure.traits.additive
    summed = run(secure, clients, rounds=6)
    open_ = run(catalog.make("fnmf-lap", 3), clients, rounds=6)
    assert matched_cosines(summed.factor, open_.factor).min() > 0.98


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fnmf-lap"])
def test_more_rounds_lower_the_loss(name, clients):
    history = run(catalog.make(name, 3), clients, rounds=15, stop=Stop()).history
    assert history[-1].loss < history[0].loss
    assert len(history) == 15
