"""While a block is worked on the next one is read, in every format; what goes wrong there names the file."""

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import anndata
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

from cofactor import run
from cofactor.data import load
from cofactor.data.formats.row_blocks import RowBlocks
from cofactor.data.formats.stored import Derived
from cofactor.local.threads import lend
from cofactor.methods import catalog
from cofactor.types import CofactorError, DataError

pytestmark = pytest.mark.filterwarnings("ignore:Writing zarr v2")

N, M = 40, 6
X = np.random.default_rng(0).random((N, M)) + 0.1


def frame() -> pd.DataFrame:
    return pd.DataFrame(X, columns=list("abcdef"))


def text(path: Path) -> None:
    path.write_bytes(gzip.compress(frame().to_csv(index=False).encode()))


WRITERS = {
    "x.npy": lambda path: np.save(path, X),
    "f.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "x.zarr": lambda path: zarr.create_array(str(path), data=X, chunks=(10, M)),
    "x.parquet": lambda path: frame().to_parquet(path, row_group_size=10),
    "csr.h5ad": lambda path: anndata.AnnData(sparse.csr_matrix(X)).write_h5ad(path),
    "dense.h5ad": lambda path: anndata.AnnData(X).write_h5ad(path),
    "x.npz": lambda path: np.savez_compressed(path, X=X),
    "x.csv.gz": text,
}


def gone(path: Path) -> None:
    (shutil.rmtree if path.is_dir() else Path.unlink)(path)


def cut(path: Path) -> None:
    """Leave three quarters of a file; of a folder, spoil its largest."""
    file = max((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size) if path.is_dir() else path
    found = file.read_bytes()
    file.write_bytes(found[: len(found) * 3 // 4])


@pytest.fixture(params=list(WRITERS))
def path(request, tmp_path) -> Path:
    WRITERS[request.param](tmp_path / request.param)
    return tmp_path / request.param


def blocks_of(path: Path, rows: int = 10) -> RowBlocks:
    found = load.read(path, blocks=True).X
    assert isinstance(found, RowBlocks)
    found = RowBlocks(found.source, int(rows * found._row_bytes))
    assert found.block_rows == rows
    return found


@dataclass(frozen=True, eq=False)
class Told(Derived):
    """A source that says when a read begins."""

    begun: dict[int, Event]

    @property
    def shape(self):
        return self.inner.shape

    def read(self, start, stop):
        self.begun[start].set()
        return self.inner.read(start, stop)


def test_the_next_block_is_read_while_one_is_worked_on(path):
    found = blocks_of(path)
    begun = {rows.start: Event() for rows in found.slices()}
    for rows, block in RowBlocks(Told(found.source, begun), found.block_bytes).blocks():
        np.testing.assert_allclose(block.toarray() if sparse.issparse(block) else block, X[rows])
        assert begun.get(rows.stop, begun[0]).wait(60)  # else it waits for this one


@pytest.mark.parametrize("threads", [1, 2])
def test_rounds_over_blocks_are_those_in_memory(path, threads):
    with lend(threads):
        there = run(catalog.make("exact", 2), [blocks_of(path)], rounds=6)
    here = run(catalog.make("exact", 2), [X], rounds=6)
    np.testing.assert_allclose(there.factor, here.factor, rtol=1e-6)
    np.testing.assert_allclose(there.codes[0], here.codes[0], rtol=1e-6)


@pytest.mark.parametrize("spoil", [gone, cut])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_goes_wrong_in_the_thread_names_the_file(path, spoil, threads):
    found = blocks_of(path)
    spoil(path)
    with pytest.raises(DataError, match=path.name), lend(threads):
        for _ in found.blocks():
            pass
    with pytest.raises(CofactorError, match=path.name), lend(threads):
        run(catalog.make("exact", 2), [found], rounds=2)


def test_a_file_of_fewer_rows_than_before_is_not_filled_up(tmp_path):
    path = tmp_path / "x.parquet"
    frame().to_parquet(path, row_group_size=10)
    found = blocks_of(path)
    frame()[:25].to_parquet(path, row_group_size=10)
    for rows in (slice(20, 30), slice(30, 40)):
        with pytest.raises(
            DataError, match=r"x.parquet: expected the file as it was opened, found that it has changed"
        ):
            found.row_block(rows)
    found = blocks_of(path)
    object.__setattr__(found.source, "shape", (40, found.shape[1]))  # as a source that knows nothing of its file
    with pytest.raises(DataError, match=r"x.parquet: expected rows 20:30 of 40, found 5"):
        list(found.blocks())
    with pytest.raises(DataError, match="found 0"):
        found.row_block(slice(30, 40))
