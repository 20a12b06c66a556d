"""Values of the options of methods: refused in words where a method is named, by what their signatures say."""

import inspect

import numpy as np
import pytest

from cofactor.methods import catalog
from cofactor.methods.values import KNOWN, check_value
from cofactor.types import CofactorError

WRONG = {
    "int": ["x", -1, 2.5, True, None],
    "float": ["x", float("nan"), True, None],
    "bool": ["maybe", 1, None],
    "str": [3, None],
    "tuple[float, float]": [2, "1,1", (1,), (1, 2, 3), (1, -1), ("a", "b"), None],
    "tuple[int, ...]": [2, "x", (1.5,)],
}


@pytest.mark.parametrize("name", catalog.names())
def test_every_option_takes_its_default_and_refuses_what_it_is_not(name):
    entry = catalog.find(name)
    for option, taken in inspect.signature(entry.make).parameters.items():
        kind, _, or_none = str(taken.annotation).partition(" | ")
        if kind not in KNOWN or option == "rank":
            continue
        if taken.default is not inspect.Parameter.empty:
            catalog.check_options(entry, {option: taken.default})
        for value in WRONG[kind]:
            if value is None and or_none:
                continue
            with pytest.raises(CofactorError, match=f"option {option} of {name!r}: expected .*, found"):
                catalog.check_options(entry, {option: value})


def test_numbers_of_numpy_and_what_is_computed_by_round_pass():
    check_value("exact", "restarts", "int", np.int64(3))
    check_value("exact", "momentum", "float", np.float32(0.5))
    check_value("fedavg", "sweeps", "int", lambda t: t)
    with pytest.raises(CofactorError, match=r"restarts of 'exact': expected a whole number >= 1, found 0"):
        catalog.make("exact", 3, restarts=0)
