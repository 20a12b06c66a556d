"""Arrays on a device do what numpy's do: the same numbers, in the same type."""

import numpy as np
import pytest

from cofactor.local.placed import Placed, placed, to_host

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
A, B = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(5, 4))
K = np.array([True, False, True, True, False])


def on(a):
    return placed(a, torch.device("cpu"))


FUNCTIONS = {
    "mixed types": lambda a, b: a * 2 + b,
    "a number of numpy is a number with a type": lambda a, b: a * np.float64(2),
    "a number of python has none": lambda a, b: a * 2.0,
    "product": lambda a, b: a.T @ b,
    "comparison": lambda a, b: (a > b) & (b < 1),
    "maximum": lambda a, b: np.maximum(a, 0),
    "division where": lambda a, b: np.divide(b, a, out=np.zeros_like(b), where=a > 0),
    "whole numbers divided": lambda a, b: (a > 0) / np.int64(2),
    "outer difference": lambda a, b: np.subtract.outer(a[:, 0], b[:, 1]),
    "sums": lambda a, b: np.sum(a, axis=1, keepdims=True),
    "sum in double precision": lambda a, b: a.sum(dtype=np.float64),
    "largest, or 0": lambda a, b: (a - 10).max(axis=0, initial=0),
    "any": lambda a, b: (a > 1).any(axis=1),
    "mean": lambda a, b: a.mean(axis=1, keepdims=True),
    "norm": lambda a, b: np.linalg.norm(a, axis=1),
    "einsum": lambda a, b: np.einsum("mk,mk->k", a, b),
    "where": lambda a, b: np.where(a > 0, a, 0),
    "stack": lambda a, b: np.stack([a, b]),
    "concatenate": lambda a, b: np.concatenate([a, b]),
    "outer": lambda a, b: np.outer(np.ones(1, bool), a[0]),
    "triangle": lambda a, b: np.triu(a[:4], 1),
    "diagonal": lambda a, b: np.diag(a[:4]),
    "vdot": lambda a, b: np.vdot(a[0], b[1]),
    "clip": lambda a, b: np.clip(a, -0.5, 0.5),
    "order": lambda a, b: np.argsort(-a[:, 0], kind="stable"),
    "largest at": lambda a, b: np.argmax(a[0]),
    "rows by mask": lambda a, b: a[K],
    "rows by number": lambda a, b: a[np.array([3, 1])],
    "a block": lambda a, b: a[np.ix_([0, 2], [1, 3])],
    "eye beside it": lambda a, b: np.eye(3, like=a),
    "eigenvalues": lambda a, b: np.linalg.eigvalsh(b.T @ b),
    "unknown to tensors": lambda a, b: np.median(a, axis=0),
    "type of a result": lambda a, b: np.zeros(1, np.result_type(a, b)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_gives_what_numpy_gives(name):
    wanted, found = FUNCTIONS[name](A, B), to_host(FUNCTIONS[name](on(A), on(B)))
    assert np.asarray(found).dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("swap", [False, True])
def test_arrays_in_memory_follow_those_on_a_device(swap):
    found = B * on(A) if swap else on(A) * B
    assert isinstance(found, Placed)
    np.testing.assert_allclose(to_host(found), A * B)


def test_writing_into_an_array_changes_it_and_nothing_else():
    a, b = on(A.copy()), on(A.copy())
    a[:, 1] = np.arange(5)
    a[K] = 7
    a += 1
    wanted = A.copy()
    wanted[:, 1] = np.arange(5)
    wanted[K] = 7
    np.testing.assert_array_equal(to_host(a), wanted + 1)
    np.testing.assert_array_equal(to_host(b), A)


def test_a_result_may_be_written_into_memory():
    out = np.zeros((5, 4))
    out += on(A)
    np.testing.assert_allclose(out, A)


def test_numbers_are_read_one_by_one():
    a = on(A)
    assert float(a[0, 0]) == pytest.approx(float(A[0, 0]))
    assert len(a) == 5
    assert a.nbytes == A.nbytes
    assert a.T.shape == (4, 5)
    assert bool((a == A).all())
