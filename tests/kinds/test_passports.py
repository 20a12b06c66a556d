"""Component passports: matched over clients, seeds and rounds; shares; features; laws and bad input."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from cofactor.combine.align import Lap
from cofactor.data import synthetic
from cofactor.engines.loop import run
from cofactor.kinds.matching import agreement, cosines, distances
from cofactor.kinds.own_fits import OWN_ROWS, draw
from cofactor.kinds.passports import describe
from cofactor.local.stats import normalize, shares
from cofactor.methods import catalog
from cofactor.select import passports
from cofactor.types import CofactorError


@pytest.fixture(scope="module")
def planted():
    return synthetic.blocks(5, 50, features=30, rank=5, patterns=3, seed=2)


@pytest.fixture(scope="module")
def found(planted):
    return run(catalog.make("exact", 5), planted.Xs, rounds=10)


@pytest.fixture(scope="module")
def papers(planted, found):
    return passports(planted.Xs, found.factor, found.codes, seeds=2)


def test_clients_that_have_a_pattern_find_it(planted, found, papers):
    partner = Lap()(normalize(found.factor), normalize(planted.factor)).argmax(axis=1)
    has = np.array([(W > 0).any(axis=0) for W in planted.codes])[:, partner]
    np.testing.assert_array_equal(np.array([p.cosines for p in papers]).T >= 0.8, has)
    assert [p.clients for p in papers] == has.sum(axis=0).tolist()
    assert all(p.n_clients == 5 for p in papers)


def test_planted_components_are_stable(papers):
    assert min(p.stability for p in papers) > 0.95
    assert all(p.drift is None for p in papers)


def test_shares_sum_to_one_and_are_those_of_the_reconstruction(found, papers):
    assert sum(p.share for p in papers) == pytest.approx(1)
    np.testing.assert_allclose(np.sum([p.client_shares for p in papers], axis=0), 1)
    W, H = np.vstack(found.codes), found.factor
    R = W @ H
    for i, p in enumerate(papers):
        assert p.share == pytest.approx(np.sum(np.outer(W[:, i], H[i]) * R) / np.sum(R**2))


def test_a_permuted_and_scaled_factor_gives_the_same_passports(planted, found, papers):
    order, scale = np.array([3, 0, 4, 1, 2]), np.array([2.0, 0.5, 1.0, 3.0, 7.0])
    moved = passports(
        planted.Xs, found.factor[order] * scale[:, None], [W[:, order] / scale for W in found.codes], seeds=2
    )
    for i, p in enumerate(moved):
        expected = replace(papers[order[i]], component=i)
        for a, b in zip(_numbers(p), _numbers(expected), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)
        assert [n for n, _ in p.features] == [n for n, _ in expected.features]


def _numbers(p):
    return p.clients, p.cosines, p.stability, p.share, p.client_shares, [w for _, w in p.features]


def test_drift_is_the_largest_move_of_the_last_rounds(planted, found):
    H = normalize(found.factor)
    moved = H.copy()
    moved[2] = normalize((H[2] + 0.2 * H[0])[None])[0]
    old = np.random.default_rng(0).random(H.shape)
    history = [old, H[::-1], moved[[2, 0, 1, 4, 3]], H, H, H]
    drift = [p.drift for p in passports(planted.Xs, H, found.codes, seeds=1, history_factors=history)]
    assert drift[2] == pytest.approx(np.linalg.norm(moved[2] - H[2]))
    np.testing.assert_allclose(np.delete(drift, 2), 0, atol=1e-12)


def test_features_have_names_and_fall(planted, found):
    names = [f"gene{i}" for i in range(30)]
    named = passports(planted.Xs, found.factor, found.codes, seeds=1, feature_names=names, top=4)
    for row, p in zip(normalize(found.factor), named, strict=True):
        weights = [w for _, w in p.features]
        assert weights == sorted(row.tolist(), reverse=True)[:4]
        assert p.features[0][0] == f"gene{row.argmax()}"


def test_reproducible_and_sparse_is_dense(planted, found, papers):
    again = passports([sparse.csr_matrix(X) for X in planted.Xs], found.factor, found.codes, seeds=2)
    for p, q in zip(papers, again, strict=True):
        for a, b in zip(_numbers(p), _numbers(q), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)
    assert passports(planted.Xs, found.factor, found.codes, seeds=2) == papers


def test_only_a_summary_and_a_gram_leave_a_client(planted, found):
    message, _ = describe(planted.Xs[0], found.factor, codes=found.codes[0], address=(0, 0))
    assert {n: a.shape for n, a in message.arrays.items()} == {"factor": (5, 30), "gram": (5, 5), "code_gram": (5, 5)}


def test_what_clients_found_alone_in_a_run_is_what_passports_ask_for(planted):
    outcome = run(catalog.make("oneshot", 5), planted.Xs, work=[lambda client, factor: client.own] * 5)
    for j, (V, H) in enumerate(outcome.findings):
        _, own = describe(planted.Xs[j], outcome.factor, codes=outcome.codes[j], address=(0, j))
        np.testing.assert_array_equal(V, own.codes)
        np.testing.assert_array_equal(H, own.factor)


def test_drawn_rows_stand_for_all_of_them():
    """Their squares add up to those of all rows in the mean, and the few rows that hold most are always there."""
    rng = np.random.default_rng(0)
    X = rng.gamma(0.3, size=(400, 6))
    X[7] *= 100
    for data in (X, sparse.csr_matrix(X)):
        drawn = [draw(data, 150, np.random.default_rng(s)) for s in range(200)]
        assert all(7 in d.rows for d in drawn)
        sums = [(d.data(data).T @ d.codes(X) - np.outer(X[7], X[7])) for d in drawn]
        np.testing.assert_allclose(
            np.mean(sums, axis=0), np.delete(X, 7, axis=0).T @ np.delete(X, 7, axis=0), rtol=0.05
        )
    assert draw(X, 201, rng) is None
    assert 150 < len(draw(np.zeros((400, 6)), 200, rng).rows) < 250


def test_clients_of_many_rows_look_at_some_and_find_what_they_have():
    planted = synthetic.blocks(5, 4200, features=30, rank=5, patterns=3, seed=2)
    found = run(catalog.make("exact", 5), planted.Xs, rounds=10)
    message, own = describe(planted.Xs[0], found.factor, codes=found.codes[0], address=(0, 0))
    assert len(own.codes) == pytest.approx(OWN_ROWS, rel=0.1)
    assert message.weight == 4200
    assert np.sum(message.arrays["gram"] * (own.factor @ own.factor.T)) == pytest.approx(
        np.sum(planted.Xs[0] ** 2), rel=0.05
    )
    finds = np.array([p.cosines for p in passports(planted.Xs, found.factor, found.codes, seeds=1)]).T >= 0.8
    partner = Lap()(normalize(found.factor), normalize(planted.factor)).argmax(axis=1)
    np.testing.assert_array_equal(finds, np.array([(W > 0).any(axis=0) for W in planted.codes])[:, partner])


def test_clients_of_one_row_and_unused_components(planted, found):
    Xs = [planted.Xs[0], planted.Xs[1][:1]]
    H = np.vstack([found.factor[:2], np.zeros((1, 30))])
    codes = [np.column_stack([found.codes[0][:, :2], np.zeros(50)]), np.zeros((1, 3))]
    papers = passports(Xs, H, codes, seeds=1)
    assert papers[2].share == papers[2].clients == papers[2].stability == 0
    assert papers[2].features == ()
    assert [p.client_shares[1] for p in papers] == [0, 0, 0]
    assert [p.cosines[1] for p in papers] == [0, 0, 0]
    assert all(p.stability == 0 for p in passports(Xs[1:], H, codes[1:], seeds=1))


def test_bad_input_is_refused(planted, found):
    Xs, H, codes = planted.Xs, found.factor, found.codes
    for change, message in [
        ({"factor": H[:, :-1]}, "expected k x 30 features"),
        ({"codes": codes[:-1]}, r"one array per client \(5\), found 4"),
        ({"codes": [W[:, 1:] for W in codes]}, r"client 0: expected codes of \(50, 5\)"),
        ({"feature_names": ["a"]}, r"one name per feature \(30\), found 1"),
        ({"history_factors": [H[1:]]}, r"history_factors\[0\]: expected shape \(5, 30\)"),
        ({"seeds": 0}, "at least 1"),
        ({"top": 0}, "at least 1"),
    ]:
        arguments = {"factor": H, "codes": codes, **change}
        with pytest.raises(CofactorError, match=message):
            passports(Xs, arguments.pop("factor"), arguments.pop("codes"), **arguments)


def test_matching_is_blind_to_order_and_scale(rng):
    H = rng.random((4, 9))
    other = H[[2, 0, 3, 1]] * np.array([[1.0], [5.0], [0.1], [2.0]])
    np.testing.assert_allclose(cosines(H, other), 1)
    np.testing.assert_allclose(distances(H, other), 0, atol=1e-12)
    assert agreement([H, other, H[::-1]]) == pytest.approx(1)
    assert np.isnan(agreement([H]))
    assert (cosines(H, H[:2]) == 0).sum() == 2


def test_shares_of_nothing_are_zero():
    np.testing.assert_array_equal(shares(np.zeros((2, 2)), np.ones((2, 3))), 0)


def test_a_rare_component_that_a_small_client_finds_alone_is_found():
    """Its share there is small, and its own fit at the same rank has it."""
    draw = np.random.default_rng(0)
    H = draw.dirichlet(np.full(96, 0.08), size=5)
    Xs = []
    for n in (200, 60, 16):
        codes = draw.gamma(0.6, size=(n, 5)) * draw.lognormal(6, 1, size=(n, 1)) * draw.binomial(1, 0.6, size=(n, 5))
        codes[:, 0] += 20
        Xs.append(draw.poisson(codes @ H).astype(float))
    found = run(catalog.make("exact", 5), Xs, rounds=50)
    alone = run(catalog.make("exact", 5), Xs[2:], rounds=50)
    least = cosines(found.factor, alone.factor).min()
    assert least > 0.9
    told = passports(Xs, found.factor, found.codes, seeds=1)
    assert min(p.cosines[2] for p in told) > least - 0.1
    assert min(p.client_shares[2] for p in told) < 0.1 / 5


def test_what_many_rows_show_alone_does_not_depend_on_their_size():
    """It is found in single precision, which has no room for squares of 1e30."""
    rng = np.random.default_rng(0)
    H = rng.gamma(0.4, size=(3, 12))
    X = rng.gamma(0.5, size=(4500, 3)) @ H
    one, large = (describe(X * size, H, codes=np.ones((4500, 3)), address=(0, 0))[1] for size in (1.0, 2.0**100))
    assert one.drawn is not None
    assert len(one.codes) < 3000
    assert one.factor.dtype == X.dtype
    np.testing.assert_allclose(one.factor, large.factor, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(one.codes, large.codes / 2.0**100, rtol=1e-6, atol=1e-9)
    rest = one.drawn.data(X) - one.codes @ one.factor
    assert np.linalg.norm(rest) < 1e-2 * np.linalg.norm(X)
