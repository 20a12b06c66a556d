"""method="auto": each branch of the choice, and the sentence that says why."""

import numpy as np
import pytest
from scipy import sparse

from cofactor import FederatedNMF, Privacy
from cofactor.methods import catalog
from cofactor.methods.auto import choose, density_of
from cofactor.methods.build import Facts, build, settle
from cofactor.methods.sketched import LARGE
from cofactor.plan import Plan
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


def test_what_is_chosen_is_built():
    n, m = LARGE_SHAPE
    assert build("auto", 5, Plan(), Facts(1, m, n))[0] == catalog.make("dsanls", 5, shape=LARGE_SHAPE)
    assert build("auto", 5, Plan(), Facts(1, 40, 50))[0] == catalog.make("exact", 5, restarts=8)
    assert build("auto", 5, Plan(), Facts(3, m, n))[0] == catalog.make("exact", 5)
    with pytest.raises(CofactorError, match="method 'auto' depends on the matrix: expected rows and features"):
        build("auto", 5, Plan(), Facts(1, m))
    with pytest.raises(CofactorError, match="method 'dsanls' depends on the matrix: expected its shape"):
        build("dsanls", 5, Plan(), Facts(1, m))


@pytest.mark.parametrize("plan", [Plan(privacy=Privacy(1.0, 1e-6)), Plan(secure=True)], ids=["private", "secure"])
def test_nothing_is_looked_at_where_only_sums_may_be_seen(plan):
    """Rows and density would tell what is to be hidden: the choice does not depend on them."""
    n, m = LARGE_SHAPE
    name, why = settle("auto", 5, plan, Facts(3, m, n))
    assert name == "exact"
    assert "nothing else may be looked at" in why
    assert {settle("auto", 5, plan, facts)[1] for facts in (Facts(3), Facts(3, 40, 50, 0.1))} == {why}


def test_density_counts_what_is_not_zero(rng):
    X = rng.uniform(size=(400, 30)) * (rng.uniform(size=(400, 30)) < 0.3)
    assert density_of(X) == pytest.approx(0.3, abs=0.03)
    assert density_of(sparse.csr_matrix(X)) == pytest.approx((X > 0).mean())


def test_the_estimator_chooses_and_takes_one_matrix_for_blocks(clients):
    model = FederatedNMF(3, method="auto", random_state=0).fit(clients)
    np.testing.assert_array_equal(model.components_, FederatedNMF(3, random_state=0).fit(clients).components_)
    X = np.vstack(clients)
    whole = FederatedNMF(3, method="hals", rounds=30, random_state=0).fit(X)
    assert whole.n_rounds_ == 61
    assert whole.codes_[0].shape == (len(X), 3)
    assert whole.reconstruction_err_ < 1.05 * FederatedNMF(3, random_state=0).fit(X).reconstruction_err_
    with pytest.raises(CofactorError, match=r"works on row and column blocks of one matrix.*found 3 clients"):
        FederatedNMF(3, method="hals").fit(clients)
