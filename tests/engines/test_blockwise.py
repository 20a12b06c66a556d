"""The state of all rows, from that of blocks: what they kept is not copied, what is new is in its place."""

import numpy as np
import pytest

from cofactor.engines.blockwise import Whole
from cofactor.types import Local

ROWS = [slice(0, 4), slice(4, 8), slice(8, 11)]


@pytest.fixture
def before(rng) -> Local:
    return Local(rng.random((11, 3)), {"square": rng.random(11), "old": rng.random((11, 3))})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_what_blocks_kept_is_that_of_all_rows(before: Local, order: tuple[int, ...]) -> None:
    whole, new = Whole(before), before.codes + 1
    for rows in (ROWS[i] for i in order):
        part = before.rows(rows)
        whole.put(Local(new[rows].copy(), {"square": part.memory["square"], "old": part.codes}), rows)
    found = whole.local()
    np.testing.assert_array_equal(found.codes, new)
    assert found.memory["square"] is before.memory["square"]
    assert found.memory["old"] is before.codes


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_where_only_some_blocks_kept_it_nothing_of_before_is_written_to(before: Local, kept: int) -> None:
    whole, codes, expected = Whole(before), before.codes.copy(), before.codes + 1
    expected[ROWS[kept]] -= 1
    for i, rows in enumerate(ROWS):
        own = before.codes[rows]
        whole.put(Local(own if i == kept else own + 1), rows)
    np.testing.assert_allclose(whole.local().codes, expected)
    np.testing.assert_array_equal(before.codes, codes)


def test_blocks_of_two_types_are_of_the_wider_one() -> None:
    whole = Whole(Local(np.zeros((4, 1))))
    for rows, dtype in ((slice(0, 2), np.float32), (slice(2, 4), np.float64)):
        whole.put(Local(np.full((2, 1), 0.1, dtype)), rows)
    found = whole.local().codes
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 0.1, rtol=1e-6)
