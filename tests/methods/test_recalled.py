"""Relaxed Boolean factors with absent clients: the mean is of what all of them sent last."""

import numpy as np
import pytest
from tests.helpers.methods import play

from cofactor import FederatedBMF, Privacy
from cofactor.data import synthetic
from cofactor.methods import catalog

HERE = [(0, 1), (2, 3), (0, 3), (1, 2), (4, 0), (1, 4)]


@pytest.fixture(scope="module")
def rows():
    """Rows sorted by the tiles they are of, so that no client is like another."""
    data = synthetic.tiles(320, 60, 10, noise=0.05, seed=2)
    return data.X[np.lexsort(data.codes.T)].astype(np.float32)


@pytest.mark.parametrize("align", [None, "first", "every"])
def test_the_mean_is_of_the_last_factors_of_all_who_were_there_after_the_first_round(align, rows):
    Xs = np.split(rows, [40, 90, 120, 200])
    method = catalog.make("felb", 5, align=align, rounds=6).partial()
    last = {}
    for played in play(method, Xs, 6, who=lambda t: HERE[t]):
        if played.t == 0:
            continue
        last |= {j: played.states[j].memory["factor"] for j in HERE[played.t]}
        sizes = np.array([len(Xs[j]) for j in last])
        mean = np.average(np.stack(list(last.values())), axis=0, weights=sizes)
        memory = played.shared.memory
        assert memory["rows"] == sizes.sum()
        np.testing.assert_allclose(memory["sums"] / memory["rows"], mean, atol=1e-5)


def test_a_client_that_comes_late_begins_at_the_factor_of_the_others(rows):
    """It joined with random codes and the random start, of which a late regularizer would make bits at once."""
    Xs = np.array_split(rows, 4)
    method = catalog.make("felb", 5, rounds=40).partial()
    last = [*play(method, Xs, 40, who=lambda t: (3,) if t == 39 else (0, 1, 2))][-2:]
    before, own = last[0].shared.factor, last[1].states[3].memory["factor"]
    assert (
        np.abs(own - before).mean() < 0.25 * np.abs(method.start(60, np.random.default_rng(0)).factor - before).mean()
    )


@pytest.mark.parametrize("seed", range(2))
def test_a_fit_with_absent_clients_is_as_good_as_that_with_all(seed, rows):
    few, all_ = (FederatedBMF(5, method="felb", participation=share, random_state=seed) for share in (0.25, 1.0))
    Xs = np.array_split(rows, 8)
    assert few.fit(Xs).reconstruction_err_ <= all_.fit(Xs).reconstruction_err_


def test_a_private_form_recalls_nothing():
    private = Privacy(1.0, 1e-6, unit="client", insecure_seed=1)
    method = catalog.make("felb", 5, align=None).private(private, rounds=5, parts=None).partial()
    assert not method.traits.running
    assert catalog.make("felb", 5, align=None).partial().traits.running
