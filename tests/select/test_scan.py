"""The scan as a federated method: what leaves a client, reproducibility, sparse = dense, every client size."""

import json
import pickle

import numpy as np
import pytest
from scipy import sparse

from cofactor.data import synthetic
from cofactor.engines.contract import message_bytes
from cofactor.engines.inline import Inline
from cofactor.method import rng as address
from cofactor.select import cells, holdout, select_rank
from cofactor.select.holdout import Holdout
from cofactor.select.scan import Scan
from cofactor.types import CofactorError, DataError, Shared

CURVES = ("heldout", "heldout_std", "training", "seed_stability", "client_stability")


@pytest.fixture(scope="module")
def Xs():
    return synthetic.blocks(3, [30, 41, 25], features=16, rank=3, seed=5).Xs


@pytest.fixture(scope="module")
def scan(Xs):
    return select_rank(Xs, range(2, 6), seeds=2, seed=3)


def test_nothing_of_a_held_out_cell_is_in_the_upload(Xs):
    method = Scan((1, 2, 4))
    shared = method.start(16, address(0, -1, -1))
    local = method.join(Xs[0], shared, 0, address(0, 0, -1))
    held = Holdout(**local.memory)
    other = holdout.fill(Xs[0], held, np.full(len(held.rows), 77.0))
    sent, garbled = (method.step(X, shared, local, 0, address(0, 0, 0))[1] for X in (Xs[0], other))
    for name, a in sent.arrays.items():
        np.testing.assert_array_equal(a, garbled.arrays[name])


def test_only_a_summary_and_scalars_leave_a_client(Xs):
    method = Scan((1, 2, 4), seeds=2)
    shared = method.start(16, address(0, -1, -1))
    local = method.join(Xs[0], shared, 0, address(0, 0, -1))
    local, summary = method.step(Xs[0], shared, local, 0, address(0, 0, 0))
    assert {n: a.shape for n, a in summary.arrays.items()} == {"factor": (4, 16), "gram": (4, 4), "square": ()}
    stack = Shared(np.random.default_rng(0).random((2 * (1 + 2 + 4), 16)))
    _, scalars = method.step(Xs[0], stack, local, 1, address(0, 0, 1))
    assert {n: np.shape(a) for n, a in scalars.arrays.items()} == method.schema(16, 1)
    assert message_bytes(scalars) == 8 * (3 * 2 * (cells.GROUPS + 1) + cells.GROUPS + 2)


def test_bytes_are_one_summary_and_the_scalars(Xs, scan):
    ranks, r = 5, 5
    summary = 8 * (r * 16 + r * r + 2)
    scalars = 8 * (ranks * 2 * (cells.GROUPS + 1) + cells.GROUPS + 2)
    assert scan.bytes_up == len(Xs) * (summary + scalars)
    assert scan.bytes_down == len(Xs) * 8 * 16 * 2 * (1 + 2 + 3 + 4 + 5)


def test_same_seed_same_scan_and_another_seed_another(Xs, scan):
    again = select_rank(Xs, [5, 4, 3, 2, 2], seeds=2, seed=3, engine=Inline(workers=1))
    assert again.to_dict() == scan.to_dict()
    assert not np.array_equal(select_rank(Xs, range(2, 6), seeds=2, seed=4).heldout, scan.heldout)


def test_method_pickles(Xs):
    assert pickle.loads(pickle.dumps(Scan((1, 2)))) == Scan((1, 2))


@pytest.mark.parametrize("thin", [False, True], ids=["dense-like", "thin"])
def test_sparse_is_dense(thin):
    Xs = synthetic.blocks(2, 40, features=20, rank=3, seed=6).Xs
    cut = 2.1 if thin else 0.2
    Xs = [np.where(X > cut, X, 0) for X in Xs]
    assert (np.mean(Xs[0] > 0) < 0.2) == thin
    dense, csr, csc = (
        select_rank([f(X) for X in Xs], range(2, 5), seeds=2) for f in (np.asarray, sparse.csr_matrix, sparse.csc_array)
    )
    for name in CURVES:
        for other in (csr, csc):
            np.testing.assert_allclose(getattr(other, name), getattr(dense, name), rtol=1e-3, err_msg=name)
    assert dense.suggestion == csr.suggestion == csc.suggestion


def test_single_precision_gives_the_same_answer(Xs, scan):
    single = select_rank([X.astype(np.float32) for X in Xs], range(2, 6), seeds=2, seed=3)
    assert single.suggestion == scan.suggestion
    np.testing.assert_allclose(single.heldout, scan.heldout, rtol=0.05)
    assert single.bytes_down == scan.bytes_down // 2


def test_table_and_dict_are_json(scan):
    assert json.loads(json.dumps(scan.to_dict()))["suggestion"] == scan.suggestion
    rows = json.loads(json.dumps(scan.table()))
    assert [row["rank"] for row in rows] == [2, 3, 4, 5]
    assert [row["rank"] for row in rows if row["suggested"]] == [scan.suggestion]
    assert rows[0]["heldout"] == scan.heldout[0]


def test_one_seed_and_one_client_have_no_stability(Xs):
    found = select_rank(Xs[:1], [2, 3, 4], seeds=1)
    assert np.isnan(found.seed_stability).all()
    assert np.isnan(found.client_stability).all()
    assert found.to_dict()["seed_stability"] == [None, None, None]
    assert found.suggestion == 3


def test_tiny_clients_take_part(Xs):
    found = select_rank([*Xs, Xs[0][:1], Xs[1][:2]], [2, 3, 4], seeds=2)
    assert found.suggestion == 3
    assert found.clients == 5


def test_default_ranks_end_where_the_data_do():
    Xs = synthetic.blocks(2, 9, features=30, rank=2, seed=1).Xs
    assert select_rank(Xs, seeds=1, restarts=1).ranks.tolist() == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": []}, "at least one rank"),
        ({"ranks": [2, 17]}, r"1\.\.16.*features \(16\).*Found 17"),
        ({"ranks": [0, 2]}, "Found 0"),
        ({"ranks": [2.5]}, "Found 2.5"),
        ({"holdout": 0.0}, r"holdout must be in \(0, 0.5\]. Found 0.0"),
        ({"holdout": 0.6}, "Found 0.6"),
        ({"holdout": float("nan")}, "Found nan"),
        ({"seeds": 0}, "seeds must be"),
        ({"restarts": 0}, "restarts must be"),
    ],
)
def test_bad_settings_are_refused(Xs, change, message):
    with pytest.raises(CofactorError, match=message):
        select_rank(Xs, **{"ranks": [2], **change})


def test_bad_data_are_refused(Xs):
    with pytest.raises(CofactorError, match="at least 2 rows"):
        select_rank([Xs[0][:1]], [1])
    with pytest.raises(CofactorError, match=r"half the rows of all clients \(2\)"):
        select_rank([Xs[0][:4]], [3])
    with pytest.raises(CofactorError, match="at least 2 features"):
        select_rank([np.ones((5, 1))], [1])
    lonely = np.zeros((4, 50))
    lonely[0, 0] = 1
    with pytest.raises(CofactorError, match=r"above 0|says something"):
        select_rank([lonely], [2])
    with pytest.raises(CofactorError, match="says something"):
        select_rank([np.zeros((6, 5))], [2])
    with pytest.raises(DataError, match="NaN"):
        select_rank([np.full((6, 5), np.nan)], [2])
    with pytest.raises(DataError, match="at least one client"):
        select_rank([], [2])
