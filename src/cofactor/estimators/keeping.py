"""Models that are kept: their public part as one file, and a model that is made of it again."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cofactor.estimators import saved
from cofactor.estimators.base import Federated
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.types import Array, CofactorError


class Kept(Federated):
    """A fitted model ``X ~ W H`` whose public part can be saved; ``remade`` is the method that finds codes again."""

    remade = "exact"
    marker_scores_: Array | None = None

    def save(self, path: str | Path) -> None:
        """Write the public part of the model, what the server knows, as npz: factor, names, preparation, scores."""
        check_is_fitted(self)
        inputs = list(vars(self).get("feature_names_in_", [])) or None
        held = (self._factor, self.features_, inputs, self.n_features_in_, self._preparation, self.marker_scores_)
        saved.write(Path(path), saved.Saved(*held))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote, or the factor.npz of a run: a model that has no codes and transforms."""
        held = saved.read(Path(path))
        k, m = held.factor.shape
        method = build(cls.remade, k, Plan(), Facts(1, m, None))[0]
        bits = method.traits.kind == "boolean"
        if bits != (held.factor.dtype == np.uint8):
            right = "zeros and ones: use FederatedBMF.load" if not bits else "numbers: use FederatedNMF.load"
            raise CofactorError(f"{path}: expected a factor of {cls.__name__}, found one of {right}.")
        model = cls(k, prepare=held.preparation.text or None) if held.preparation else cls(k)
        model.components_, model.codes_, model.clients_ = held.factor, [], []
        model.features_, model.n_features_in_ = held.features, held.width
        model.n_components_, model._preparation, model._made = k, held.preparation, method
        model.marker_scores_ = held.scores
        if held.inputs is not None:
            model.feature_names_in_ = np.array(held.inputs, dtype=object)
        return model
