"""Codes as people want them: arrays, tensors where they gave tensors, or data frames that keep the names of rows."""

from __future__ import annotations

from typing import Any, Self

import sklearn
from sklearn.base import ClassNamePrefixFeaturesOutMixin

from cofactor.estimators.clients import is_many
from cofactor.estimators.tables import is_annotated, is_tensor
from cofactor.local import devices
from cofactor.types import Array, unknown

FORMS = ("default", "pandas", "polars")


class Containers(ClassNamePrefixFeaturesOutMixin):
    """An estimator whose codes come as arrays or as data frames, of one client or of a list of them."""

    _sklearn_output_config: dict[str, str]
    components_: Any
    codes_: list[Any]
    stability_: Any

    def set_output(self, *, transform: str | None = None) -> Self:
        """Choose what ``transform`` and ``fit_transform`` return: "default" (arrays), "pandas" or "polars"."""
        if transform is None:
            return self
        if transform not in FORMS:
            raise unknown("output of transform", transform, FORMS)
        self._sklearn_output_config = {"transform": transform}
        return self

    def _give_back(self, X: Any) -> None:
        """Keep what was learned as tensors, where X came as such."""
        like = X[0] if is_many(X) else X
        if not is_tensor(like):
            return
        self.components_ = devices.returned(self.components_, like)
        self.codes_ = [devices.returned(W, like) for W in self.codes_]
        self.stability_ = None if self.stability_ is None else devices.returned(self.stability_, like)

    @property
    def _factor(self) -> Array:
        """The factor in memory, whatever it was handed out as."""
        return devices.plain(self.components_)

    def _contained(self, codes: Any, X: Any) -> Any:
        """Return codes in the form that was chosen, with the row names of what they are codes of."""
        held = vars(self).get("_sklearn_output_config", {})
        form = held.get("transform", sklearn.get_config()["transform_output"])
        if form == "default":
            return [devices.returned(W, x) for W, x in zip(codes, X)] if is_many(X) else devices.returned(codes, X)
        codes = [devices.plain(W) for W in codes] if is_many(X) else devices.plain(codes)
        if is_many(X):
            return [self._frame(W, x, form) for W, x in zip(codes, X, strict=True)]
        return self._frame(codes, X, form)

    def _frame(self, W: Array, X: Any, form: str) -> Any:
        columns = [str(name) for name in self.get_feature_names_out()]
        if form == "polars":
            import polars

            return polars.DataFrame(W, schema=columns, orient="row")
        import pandas

        return pandas.DataFrame(W, index=row_names(X), columns=columns)


def row_names(X: Any) -> Any:
    """Return the index of a data frame of pandas, or the names of the cells of AnnData; None for anything else."""
    if is_annotated(X):
        return X.obs_names
    return X.index if hasattr(X, "iloc") else None
