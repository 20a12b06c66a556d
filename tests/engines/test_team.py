"""How many threads one process may use."""

import pytest

from cofactor.engines import team as module
from cofactor.engines.team import most


@pytest.mark.parametrize(("asked", "found"), [("1", 1), ("0", None), ("", None), ("a few", None)])
def test_the_environment_is_obeyed(monkeypatch, asked, found):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert most() == (found or 8)
