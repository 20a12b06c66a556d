"""method="auto": each branch of the choice, and the sentence that says why."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF
from cofactor.methods import catalog
from cofactor.methods.choice import choose, density_of
from cofactor.methods.sketched import LARGE, Sketched
from cofactor.methods.summed import Summed
from cofactor.types import CofactorError

LARGE_SHAPE = (2 * LARGE, LARGE)


@pytest.mark.parametrize(
    ("given", "method", "why"),
    [
        ({}, "dsanls", "large enough"),
        ({"clients": 2}, "exact", "clients keep their rows"),
        ({"density": 0.1}, "exact", "10% of the values are not zero"),
        ({"shape": (10**6, LARGE - 1)}, "exact", "shorter side of 1000000 x 4999 is below 5000"),
        ({"shape": (LARGE - 1, 10**6)}, "exact", "shorter side"),
        ({"rank": LARGE // 40 + 1}, "exact", "rank 126 needs a sketch of more than a tenth of 5000"),
        ({"rank": LARGE // 40}, "dsanls", "large enough"),
    ],
)
def test_every_branch_says_why(given, method, why):
    choice = choose(**{"shape": LARGE_SHAPE, "rank": 10, **given})
    assert choice.method == method
    assert choice.why.startswith(f"{method}, because ")
    assert why in choice.why
    assert choice.why.count(".") == 1, "one sentence"


def test_a_choice_never_sketches_below_the_rank():
    """A sketch of at most a tenth of the shorter side has room for 4 k columns wherever one is chosen."""
    for rank in (1, 10, 50, 125, 200, 1000):
        for short in (100, 5000, 8000, 20000):
            if choose((short, short), rank).method == "dsanls":
                method = catalog.make("dsanls", rank, shape=(short, short))
                assert method.row_sketch.draw(short, rank, np.random.default_rng(0)).d <= short / 10


def test_the_catalog_builds_what_is_chosen():
    assert isinstance(catalog.make("auto", 5, shape=LARGE_SHAPE), Sketched)
    assert isinstance(catalog.make("auto", 5, shape=(50, 40)), Summed)
    assert isinstance(catalog.make("auto", 5, shape=LARGE_SHAPE, clients=3), Summed)
    for name in ("auto", "dsanls"):
        with pytest.raises(CofactorError, match=f"method '{name}' depends on the matrix: expected its shape"):
            catalog.make(name, 5)


def test_density_counts_what_is_not_zero(rng):
    X = rng.uniform(size=(400, 30)) * (rng.uniform(size=(400, 30)) < 0.3)
    assert density_of(X) == pytest.approx(0.3, abs=0.03)
    assert density_of(sparse.csr_matrix(X)) == pytest.approx((X > 0).mean())


def test_the_estimator_chooses_and_takes_one_matrix_for_blocks(clients):
    model = FederatedNMF(3, method="auto", random_state=0).fit(clients)
    assert model.choice_.method == "exact"
    np.testing.assert_array_equal(model.components_, FederatedNMF(3, random_state=0).fit(clients).components_)
    X = np.vstack(clients)
    whole = FederatedNMF(3, method="hals", rounds=30, random_state=0).fit(X)
    assert whole.n_rounds_ == 61
    assert whole.codes_[0].shape == (len(X), 3)
    assert whole.reconstruction_err_ < 1.05 * FederatedNMF(3, random_state=0).fit(X).reconstruction_err_
    with pytest.raises(CofactorError, match=r"'hals' works on row and column blocks of one matrix.*found 3 clients"):
        FederatedNMF(3, method="hals").fit(clients)
