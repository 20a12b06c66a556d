"""Cells that two matrices have in common: in memory, in files that are mapped twice, in tensors of any kind."""

import anndata
import numpy as np
import pytest

from cofactor import FederatedNMF, Privacy
from cofactor.data import load
from cofactor.local.overlap import first_overlap
from cofactor.privacy.errors import PrivacyError

X = np.random.default_rng(0).uniform(size=(20, 4))


@pytest.fixture
def twice(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return [np.load(tmp_path / "x.npy", mmap_mode="r") for _ in range(2)]


def test_a_file_that_is_mapped_twice_is_one(twice):
    A, B = twice
    assert first_overlap([A, B]) == (0, 1)
    assert first_overlap([np.asarray(A)[:12], X, B[10:]]) == (0, 2)
    assert first_overlap([A[:10], B[10:], A.copy(), np.array(B)]) is None
    with pytest.raises(PrivacyError, match="client 1: expected each matrix once, found the rows of 0 again"):
        FederatedNMF(2, privacy=Privacy(1, 1e-3)).fit(twice)


def test_of_one_map_its_memory_tells(twice):
    A = twice[0]
    assert first_overlap([A[::2], A[1::2]]) is None
    assert first_overlap([A[::2], A[::3]]) == (0, 1)


def test_a_file_is_known_by_where_its_cells_are(tmp_path):
    X.tofile(tmp_path / "raw")
    parts = [np.memmap(tmp_path / "raw", np.float64, "r", 32 * first, (8, 4)) for first in (0, 8, 12)]
    assert first_overlap(parts[:2]) is None
    assert first_overlap(parts) == (1, 2)


def test_row_blocks_of_one_file_are_one_matrix(tmp_path):
    anndata.AnnData(X).write_h5ad(tmp_path / "x.h5ad")
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "y.npy").symlink_to("x.npy")
    for twice in (
        [anndata.read_h5ad(tmp_path / "x.h5ad", backed="r") for _ in range(2)],
        [load.read(tmp_path / name, blocks=True).X for name in ("x.npy", "y.npy")],
    ):
        with pytest.raises(PrivacyError, match="client 1: expected each matrix once, found that of 0 again"):
            FederatedNMF(2, privacy=Privacy(1, 1e-3)).fit(twice)
        FederatedNMF(2, rounds=1, tol=0).fit(twice)
        FederatedNMF(2, privacy=Privacy(9, 1e-3)).fit(twice[:1])


def test_tensors_that_numpy_does_not_know():
    torch = pytest.importorskip("torch")
    narrow = torch.from_numpy(X).bfloat16()
    assert first_overlap([narrow[:10], narrow[10:], narrow.clone()]) is None
    assert first_overlap([narrow[:12], narrow[10:]]) == first_overlap([narrow.T[:3].T, narrow.T[2:].T]) == (0, 1)
    few = torch.from_numpy(X).to_sparse_csr()
    again = torch.sparse_csr_tensor(few.crow_indices(), few.col_indices(), few.values(), few.shape)
    assert first_overlap([few, few.clone()]) is None
    assert first_overlap([few, again]) == (0, 1)
    triples = torch.from_numpy(X).to_sparse()
    assert first_overlap([triples, torch.sparse_coo_tensor(triples._indices(), triples._values(), X.shape)]) == (0, 1)
