"""How many numbers data have in memory, whatever they are kept in."""

import math

import numpy as np
import pytest
from scipy import sparse

from cofactor.local import arrays
from cofactor.local.columns import SomeColumns
from cofactor.local.weighted import Weighted

X = np.eye(3, 4)


@pytest.mark.parametrize(
    ("data", "numbers"),
    [
        (X, 12),
        (sparse.csr_array(X), 3),
        (sparse.csc_matrix(X), 3),
        (Weighted(X, X), 12),
        (SomeColumns(X, np.arange(4), 5), math.inf),
    ],
    ids=["dense", "csr", "csc", "weighted", "elsewhere"],
)
def test_every_form_of_data_has_a_size(data, numbers):
    assert arrays.stored(data) == numbers
