"""FederatedNMF: the numbers of a run, every form of input, and nothing left behind by a fit that failed."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from cofactor import FederatedNMF, run
from cofactor.data import synthetic
from cofactor.kinds.matching import cosines
from cofactor.methods import catalog
from cofactor.plan import Stop
from cofactor.types import ClientError, CofactorError, DataError


@pytest.fixture(scope="module")
def Xs():
    return synthetic.blocks(3, 40, features=20, rank=4, seed=0).Xs


def frames(Xs):
    return [pd.DataFrame(X, columns=[f"gene{i}" for i in range(X.shape[1])]) for X in Xs]


def test_estimator_and_run_give_the_same_numbers_for_the_same_seed(Xs):
    model = FederatedNMF(4, random_state=7, rounds=12).fit(Xs)
    outcome = run(catalog.make("exact", 4), Xs, rounds=12, seed=7, stop=Stop(1e-4))
    assert np.array_equal(model.components_, outcome.factor)
    assert model.n_rounds_ == len(model.history_) == len(outcome.history)


def test_groups_are_the_same_as_a_list_of_clients(Xs):
    order = np.random.default_rng(0).permutation(120)
    X, groups = np.vstack(Xs)[order], np.repeat(["a", "b", "c"], 40)[order]
    grouped = FederatedNMF(4, random_state=0)
    codes = grouped.fit_transform(X, groups=groups)
    listed = FederatedNMF(4, random_state=0).fit([X[groups == g] for g in "abc"])
    assert grouped.clients_ == ["a", "b", "c"]
    assert np.array_equal(grouped.components_, listed.components_)
    assert np.array_equal(codes[groups == "b"], listed.codes_[1])


def test_transform_scores_and_inverse(Xs):
    model = FederatedNMF(4, random_state=0).fit(Xs)
    assert np.allclose(model.transform(Xs)[1], model.codes_[1])
    assert np.allclose(model.transform(Xs[1]), model.codes_[1])
    assert model.score(Xs) == pytest.approx(1 - model.reconstruction_err_**2)
    assert np.allclose(model.inverse_transform(model.codes_)[0], model.codes_[0] @ model.components_)


def test_feature_names_are_kept_and_given_out(Xs):
    model = FederatedNMF(4, random_state=0).fit(frames(Xs))
    assert list(model.feature_names_in_[:2]) == ["gene0", "gene1"]
    assert list(model.get_feature_names_out()) == [f"federatednmf{i}" for i in range(4)]


def test_other_names_are_refused_with_the_client_and_other_orders_are_matched(Xs):
    other = frames(Xs)
    other[2] = other[2].rename(columns={"gene3": "tp53"})
    with pytest.raises(
        DataError, match=r"client 2: expected the features of client 0, found missing 'gene3' and additional 'tp53'"
    ):
        FederatedNMF(4).fit(other)
    model, other = FederatedNMF(4, random_state=0).fit(frames(Xs)), frames(Xs)
    other[1] = other[1].iloc[:, ::-1]
    assert np.array_equal(FederatedNMF(4, random_state=0).fit(other).components_, model.components_)
    assert np.allclose(model.transform(other)[1], model.codes_[1])
    other = frames(Xs)
    other[1].columns = ["gene0", "gene0", *other[1].columns[2:]]
    with pytest.raises(DataError, match=r"client 1: expected distinct feature names, found 'gene0' more than once"):
        FederatedNMF(4).fit(other)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda X: X * np.nan, r"client 1: NaN: expected finite values >= 0, found 800 .*row 0, column 0"),
        (lambda X: X - 100, r"client 1: Negative values in data"),
        (lambda X: np.where(X == X.max(), np.inf, X), r"client 1: infinite values"),
        (lambda X: X[:0], r"client 1: expected at least one row, found an empty client"),
        (lambda X: X[:, :7], r"client 1: expected 20 features like client 0, found 7"),
    ],
)
def test_bad_clients_are_named_and_nothing_is_left_half_fitted(Xs, spoil, text):
    model = FederatedNMF(4)
    with pytest.raises(DataError, match=text):
        model.fit([Xs[0], spoil(Xs[1]), Xs[2]])
    with pytest.raises(NotFittedError):
        model.transform(Xs[0])
    assert not [name for name in vars(model) if name.endswith("_")]


def test_a_rank_that_the_data_do_not_allow_is_refused(Xs):
    for k in (21, 0, 2.5):
        with pytest.raises(CofactorError, match=r"n_components: expected a whole number from 1 to 20"):
            FederatedNMF(k).fit(Xs)


def test_a_failing_client_of_a_custom_method_leaves_no_half_fit(Xs):
    class Broken:
        def __getattr__(self, name):
            return getattr(catalog.make("exact", 4, start="random"), name)

        def step(self, data, shared, local, t, rng):
            raise FloatingPointError("site went down")

    model = FederatedNMF(4, method=Broken())
    with pytest.raises(ClientError, match=r"client 0, round 0: FloatingPointError: site went down"):
        model.fit(Xs)
    assert not hasattr(model, "components_")


def test_sparse_and_float32_go_through(Xs):
    model = FederatedNMF(4, random_state=0).fit([sparse.csr_array(X.astype(np.float32)) for X in Xs])
    assert model.components_.dtype == model.codes_[0].dtype == np.float32
    dense = FederatedNMF(4, random_state=0).fit([X.astype(np.float32) for X in Xs])
    assert model.reconstruction_err_ == pytest.approx(dense.reconstruction_err_, rel=1e-3)


def test_too_few_rounds_warn_and_enough_do_not(Xs):
    with pytest.warns(ConvergenceWarning, match="3 rounds were not enough"):
        FederatedNMF(4, rounds=3, tol=1e-9, random_state=0).fit(Xs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert FederatedNMF(4, rounds=200, tol=1e-3, random_state=0).fit(Xs).n_rounds_ < 200
        FederatedNMF(4, rounds=3, tol=0, random_state=0).fit(Xs)
        FederatedNMF(4, method="oneshot", random_state=0).fit(Xs)


def test_callbacks_see_every_round(Xs):
    seen = []
    FederatedNMF(4, tol=0, rounds=4, callbacks=[lambda line, shared: seen.append(line.round)]).fit(Xs)
    assert seen == [0, 1, 2, 3]


def test_groups_must_fit_the_rows(Xs):
    with pytest.raises(CofactorError, match=r"groups: expected one label per row \(40\), found shape \(3,\)"):
        FederatedNMF(4).fit(Xs[0], groups=[1, 2, 3])
    with pytest.raises(CofactorError, match="found both"):
        FederatedNMF(4).fit(Xs, groups=[1, 2, 3])


def test_auto_says_what_it_chose_and_why(clients):
    model = FederatedNMF(2, method="auto", random_state=0).fit(clients)
    assert model.choice_.method == "exact"
    assert "clients keep their rows" in model.choice_.why


def test_components_that_another_seed_may_not_find_are_named():
    """Noise has no components. One client draws nothing, and has the same ones from every seed."""
    X = np.random.default_rng(1).exponential(size=(60, 30))
    names = [f"gene{j}" for j in range(30)]
    assert FederatedNMF(6, random_state=0).fit(X).stability_ is None
    with pytest.warns(UserWarning, match=r"components may come out otherwise from another start: \d \(gene\d+, gene"):
        model = FederatedNMF(6, random_state=0).fit([pd.DataFrame(part, columns=names) for part in (X[:30], X[30:])])
    assert model.stability_.shape == (6,)
    assert model.stability_.min() < 0.9


@pytest.mark.parametrize("clients", [2, 4])
def test_separated_components_raise_no_alarm(clients):
    for seed in range(3):
        Xs = synthetic.blocks(clients, 200 // clients, features=40, rank=4, scale=0.1, seed=seed).Xs
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="components may come out otherwise")
            assert FederatedNMF(4, random_state=seed).fit(Xs).stability_.min() > 0.97


def test_a_start_from_a_few_clients_raises_no_alarm_about_all():
    """Two clients of two patterns each cannot tell six, and the rounds after them find all six."""
    data = synthetic.blocks(20, 40, features=50, rank=6, patterns=2, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="components may come out otherwise")
        model = FederatedNMF(6, rounds=60, tol=0, participation=0.1, random_state=0).fit(data.Xs)
    assert model.stability_ is None
    assert cosines(model.components_, data.factor).min() > 0.99
