"""What every kind asks of the clients' data together."""

import numpy as np
import pandas as pd
import pytest

from cofactor import kinds
from cofactor.types import DataError


def test_data_frames_of_a_run_have_the_same_columns_in_the_same_order():
    """A run matches nothing by name: columns of other names were one feature."""
    whole = pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("abcd"))
    assert len(kinds.check("real", [whole, whole + 1, np.ones((2, 4))])) == 3
    with pytest.raises(DataError, match=r"client 1: expected columns .* as client 0, found 'd' in the place of 'a'"):
        kinds.check("real", [whole, whole[list("dcba")]])
