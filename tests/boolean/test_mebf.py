from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cofactor.boolean import error, loss, mebf, pack, product, unpack


def test_one_tile_is_found_exactly(tiles):
    X, W, H = tiles(k=1, density=1.0)
    found = mebf.segment(pack(X), 1, threshold=0.6)
    np.testing.assert_array_equal(found[0], W)
    np.testing.assert_array_equal(found[1], H)


@pytest.mark.parametrize("seed", range(3))
def test_tiles_that_share_no_column_are_found_exactly(tiles, seed):
    _, W, H = tiles(200, 100, 4, seed=seed)
    H[H.cumsum(axis=0) > 1] = 0
    X = unpack(product(W, H))
    assert error(X, *mebf.factorize(X, 4)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_tiles_that_overlap_are_nearly_found(tiles, seed):
    X = tiles(200, 100, 4, density=1.0, seed=seed)[0]
    # MEBF looks at the open cells alone, so a later tile lacks what an earlier one took: 0 to .037 by seed
    assert loss(X, *mebf.factorize(X, 4)) <= 0.05


def test_every_component_lowers_the_error(tiles):
    X = tiles(noise=0.05)[0]
    W, H = mebf.segment(pack(X), 8, threshold=0.5)
    errors = [error(X, W[:, :k], H[:k]) for k in range(9)]
    used = int(H.any(axis=1).sum())
    assert all(a > b for a, b in pairwise(errors[: used + 1]))
    assert not W[:, used:].any()
