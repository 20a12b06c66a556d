"""Readers of Matrix Market files and of 10x folders."""

from __future__ import annotations

import gzip
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy  # scipy.io loads when it is named
from scipy import sparse

from cofactor.data.formats.table import Options, Table
from cofactor.types import DataError

_MATRIX = "matrix.mtx"
_ALLOWED = b"0123456789+-.eE \t\r\n" + b"naifNAIFtyTY"  # numbers, nan, inf, infinity
_CHUNK = 1 << 22


def read_mtx(path: Path, options: Options) -> Table:
    """Read an ``.mtx`` or ``.mtx.gz`` file as it is: rows are samples, unless 10x files lie next to it.

    That is, ``[prefix]matrix.mtx`` with ``[prefix]features.tsv`` (or ``genes.tsv``) and ``[prefix]barcodes.tsv``.
    """
    if path.name.removesuffix(".gz").endswith(_MATRIX):
        features, barcodes = _beside(path, "features.tsv", "genes.tsv"), _beside(path, "barcodes.tsv")
        if features is not None and barcodes is not None:
            return _read_10x(path, features, barcodes)
    X = _mmread(path)
    return Table(sparse.csr_matrix(X) if sparse.issparse(X) else np.ascontiguousarray(X))


def _held(path: Path) -> str:
    """Say what a folder holds instead: files are given one by one, each a client."""
    files = sorted(file.name for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        return ": it holds no file"
    ending = Path(files[0]).suffix
    return f", but {files[0]}{' and others' if len(files) > 1 else ''}; give the files, each a client: {path}/*{ending}"


def read_folder(path: Path, options: Options) -> Table:
    """Read a 10x folder; its matrix is features x cells and is transposed."""
    matrix = next((path / name for name in (_MATRIX, f"{_MATRIX}.gz") if (path / name).is_file()), None)
    if matrix is None:
        raise DataError(
            f"{path}: expected a 10x folder with {_MATRIX}[.gz] (or a .zarr folder), found neither{_held(path)}."
        )
    features, barcodes = _beside(matrix, "features.tsv", "genes.tsv"), _beside(matrix, "barcodes.tsv")
    if features is None or barcodes is None:
        missing = "features.tsv[.gz] or genes.tsv[.gz]" if features is None else "barcodes.tsv[.gz]"
        raise DataError(f"{path}: expected {missing} next to {matrix.name}, found none.")
    return _read_10x(matrix, features, barcodes)


def _read_10x(matrix: Path, features: Path, barcodes: Path) -> Table:
    X = sparse.csr_matrix(_mmread(matrix).T)
    genes, cells = _lines(features), _lines(barcodes)
    for path, lines, length, what in ((features, genes, X.shape[1], "feature"), (barcodes, cells, X.shape[0], "cell")):
        if len(lines) != length:
            raise DataError(f"{path}: expected {length} lines, one per {what} of {matrix.name}, found {len(lines)}.")
    return Table(X, _gene_names(genes), [cell[0] for cell in cells])


def _mmread(path: Path) -> Any:
    """Read a Matrix Market file whose characters were checked first.

    scipy's reader takes ``2,5`` for 2, and crashes on a zero byte and on a last line that ends in anything but a
    number or a line break (https://github.com/scipy/scipy/issues/19949).
    """
    with _open(path) as file:
        lines = 1
        while (line := file.readline()).startswith(b"%"):
            lines += 1
        last = line
        while chunk := file.read(_CHUNK):
            if odd := chunk.translate(None, _ALLOWED)[:1]:
                lines += 1 + chunk.count(b"\n", 0, chunk.index(odd))
                raise DataError(f"{path}: line {lines}: expected numbers, found {odd.decode('latin-1')!r}.")
            lines += chunk.count(b"\n")
            last = last[-64:] + chunk[-64:]
    if not line or last.endswith(b"\n"):
        return scipy.io.mmread(path)
    float(last.split()[-1])  # or it ends within a number
    with _open(path) as file:
        return scipy.io.mmread(BytesIO(file.read().rstrip() + b"\n"))


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def _gene_names(genes: list[list[str]]) -> list[str]:
    """Return the symbol (second column) of every gene; where several share one, with its identifier."""
    if any(len(gene) < 2 for gene in genes):
        return [gene[0] for gene in genes]
    count = Counter(gene[1] for gene in genes)
    return [gene[1] if count[gene[1]] == 1 else f"{gene[1]}_{gene[0]}" for gene in genes]


def _beside(matrix: Path, *names: str) -> Path | None:
    """Return the file next to a matrix that has its prefix and one of the names, zipped or not."""
    prefix = matrix.name.removesuffix(".gz").removesuffix(_MATRIX)
    candidates = (matrix.with_name(f"{prefix}{name}{zipped}") for name in names for zipped in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def _lines(path: Path) -> list[list[str]]:
    """Return the cells of every line of a small tab-separated file without header."""
    with _open(path) as file:
        return [line.split("\t") for line in file.read().decode("utf-8").splitlines() if line.strip()]
