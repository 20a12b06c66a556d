"""The local inverse Simpson index: known answers, and what own parts do for it."""

import numpy as np
import pytest

from cofactor import FederatedNMF
from cofactor.select.mixing import lisi
from cofactor.types import CofactorError


def test_known_answers():
    draw = np.random.default_rng(0)
    codes = draw.standard_normal((600, 3))
    labels = draw.integers(3, size=600)
    assert lisi(codes, labels).mean() == pytest.approx(3, rel=0.1)  # mixed at random
    assert lisi(codes + 100 * labels[:, None], labels).mean() == pytest.approx(1, abs=1e-6)  # apart
    assert lisi(codes, np.zeros(600)).tolist() == pytest.approx([1.0] * 600)


def test_weights_have_the_perplexity():
    """Neighbours at equal distances count alike; a tenth of another label is seen as such."""
    grid = np.stack(np.meshgrid(*[np.arange(12.0)] * 2), -1).reshape(-1, 2)
    labels = np.arange(len(grid)) % 2
    found = lisi(grid, labels, perplexity=20)
    assert 1.8 < found.mean() <= 2.0


def test_own_parts_mix_clients():
    draw = np.random.default_rng(0)
    programs = draw.gamma(0.3, size=(4, 40))
    kinds = [draw.integers(4, size=80) for _ in range(3)]
    labs = [
        (np.eye(4)[kind] + 0.1 * draw.random((80, 4))) @ (programs + 0.8 * draw.gamma(0.3, size=(4, 40)))
        for kind in kinds
    ]
    clients, kind = np.repeat(range(3), 80), np.concatenate(kinds)
    found = {}
    for method in ("exact", "shared-own"):
        codes = np.vstack(FederatedNMF(4, method=method, random_state=0).fit(labs).codes_)
        codes /= np.linalg.norm(codes, axis=1, keepdims=True)
        found[method] = lisi(codes, clients).mean(), lisi(codes, kind).mean()
    assert found["shared-own"][0] > found["exact"][0]
    assert found["shared-own"][1] <= found["exact"][1] + 0.1


@pytest.mark.parametrize(("labels", "perplexity"), [([0] * 3, 2.0), ([0] * 9, 30.0), ([0] * 9, 0.5)])
def test_bad_input(labels, perplexity):
    with pytest.raises(CofactorError, match="expected"):
        lisi(np.ones((9, 2)), labels, perplexity=perplexity)
