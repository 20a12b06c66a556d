"""FederatedBMF: Boolean matrix factorization over clients whose rows may not be pooled."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofactor.boolean import check_boolean, product, unpack
from cofactor.data import binarize
from cofactor.data.harmonise import How
from cofactor.engines.contract import Callback, Engine
from cofactor.engines.outcome import Run
from cofactor.estimators import clients
from cofactor.estimators.base import seed_of
from cofactor.estimators.given import NOTHING, Given
from cofactor.estimators.keeping import Kept
from cofactor.estimators.tables import is_frame
from cofactor.kinds.kind import Score
from cofactor.kinds.zero_one import ZERO_ONE, support
from cofactor.method import Method
from cofactor.methods.build import Facts
from cofactor.privacy.allowance import Privacy
from cofactor.privacy.errors import PrivacyError
from cofactor.select import boolean_ranks
from cofactor.types import Array, CofactorError, Data, DataError


class Tile(NamedTuple):
    """A component as a tile: its features, the rows that use it, and the share of ones among the cells of both.

    ``features`` are names, or places where features have none; ``support`` of ``rows`` rows; precision is NaN for a
    component that no row uses.
    """

    component: int
    features: list[Any]
    support: int
    rows: int
    precision: float


class FederatedBMF(Kept):
    """One 0/1 factor H shared by all clients, private 0/1 codes W_j, ``X_j ~ W_j o H`` (OR of ANDs).

    Parameters
    ----------
    n_components : the rank k; None takes min(10, features, rows), "auto" the one of up to 20 at which tiles best say
        what was hidden from rows that they have not seen (:mod:`cofactor.select.boolean_ranks`).
    method : a name from ``cofactor.methods.catalog.names("boolean")``, or a method object.
        ``"boolean-oneshot"`` needs one upload per client, ``"boolean-exact"`` sums only, ``"felb"`` is the paper's.
    align : "every", "first" or None: when components are matched between clients (felb, falb and the one-shot
        baselines); "auto" leaves it to the method.
    aggregate : "vote", "round" or "or" (one-shot baselines); None leaves it to the method.
    sweeps : rounds of Boolean coordinate sweeps at the end, each one more upload of counts; 0 for none. None leaves it
        to the method: 3 after one upload, 10 after a schedule of rounds.
    rounds : length of the plan, sweeps included (felb, falb, boolean-exact); None leaves it to the method.
    threshold : values >= threshold are ones, others zeros; None accepts only 0 and 1.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same bits everywhere.
    engine : what carries the messages; None runs all clients in this process.
    device : a device of torch that does the arithmetic, such as "cuda" (extra ``gpu``); None is this CPU, by numpy.
    privacy : a :class:`~cofactor.privacy.Privacy` with ``unit="client"``, for felb, falb and the votes; no sweeps then.
    secure : add messages up under masks, so that only their sum can be seen (3 clients or more).
    features : how features of clients are matched by name: "same" (in any order), "intersection", or "position".
    layer : of AnnData, the layer to read instead of ``X`` ("raw" for the raw matrix).
    prepare : steps that make zeros and ones of every row, here and in ``transform``, as ``"library,binarize=2"``
        (:mod:`cofactor.data.steps`).
    options : further options of the named method, such as ``{"local": "asso"}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    components_ : the shared factor H (k x m), uint8 zeros and ones.
    codes_ : list of the codes W_j (n_j x k, uint8), one per client in the order of ``clients_``.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    history_ : one :class:`~cofactor.engines.history.Round` per round; its loss is half the errors in a sweep.
    reconstruction_err_ : the loss ``|X xor (W o H)| / |X|`` over all rows; of a private fit over those in this process.
    n_rounds_ : rounds that were run.
    epsilon_, ledger_ : what the fit cost in all (infinite without ``privacy``), and its ledger (or None).

    Examples
    --------
    >>> from cofactor import FederatedBMF
    >>> from cofactor.data import synthetic
    >>> data = synthetic.tiles(300, 40, 3, density=1.0, noise=0.0)
    >>> model = FederatedBMF(3, random_state=0).fit([data.X[:100], data.X[100:]])
    >>> model.components_.shape, model.components_.dtype.name
    ((3, 40), 'uint8')
    >>> model.score(data.X)
    1.0
    """

    def __init__(
        self,
        n_components: int | str | None = None,
        *,
        method: str | Method = "boolean-oneshot",
        align: str | None = "auto",
        aggregate: str | None = None,
        sweeps: int | None = None,
        rounds: int | None = None,
        threshold: float | None = None,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        device: Any = None,
        privacy: Privacy | None = None,
        secure: bool = False,
        features: How = "same",
        layer: str | None = None,
        prepare: Any = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.align = align
        self.aggregate = aggregate
        self.sweeps = sweeps
        self.rounds = rounds
        self.threshold = threshold
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.device = device
        self.privacy = privacy
        self.secure = secure
        self.features = features
        self.layer = layer
        self.prepare = prepare
        self.options = options
        self.callbacks = callbacks

    _dtype = "numeric"
    _kind = ZERO_ONE
    remade = "boolean-exact"
    told = ("align", "aggregate", "sweeps", "threshold", "features", "layer")

    def _convert(self, X: Any, client: Any) -> Data:
        if self.prepare is not None:
            return super()._convert(X, client)
        X = clients.matrix(X, client, clients.NUMBERS if is_frame(X) else self._dtype)
        values = X.data if sparse.issparse(X) else X
        if values.dtype.kind == "f" and not (finite := np.isfinite(values)).all():
            found = f"{np.sum(~finite)} NaN or infinity; fill or drop them."
            raise DataError(f"client {client}: expected zeros and ones, found {found}")
        return (X if self.threshold is None else binarize.threshold(X, self.threshold)).astype(np.float32)

    def _refuse_scan(self) -> None:
        """Refuse a rank scan that would show what the fit itself does not."""
        if self.n_components == "auto" and (self._budget is not None or self.secure):
            where = "with secure sums: it needs" if self._budget is None else "in a private fit: it reads"
            what = "each client's own tiles" if self._budget is None else "all rows without noise"
            raise PrivacyError(f"n_components='auto' is refused {where} {what}. Give a number.")

    def _rank(self, facts: Facts, data: list[Data]) -> int:
        if self.n_components != "auto":
            return super()._rank(facts, data)
        if clients.is_elsewhere(data) or self.engine is not None:
            raise CofactorError("n_components='auto': expected clients in this process (engine=None). Give a number.")
        return boolean_ranks.suggested(data, seed=seed_of(self.random_state))

    def _fixed(self, H: Array) -> Array:
        check_boolean(H, "H")
        return H.astype(np.uint8)

    def _fit(self, X: Any, groups: Any, given: Given = NOTHING) -> clients.Clients:
        if self.threshold is not None and self.prepare is not None:
            raise CofactorError("threshold: expected no prepare beside it, found both; end prepare with binarize=...")
        if self.threshold is not None and clients.is_elsewhere(X):
            raise CofactorError("threshold: expected None for data on workers. Make zeros and ones there: X >= 0.5.")
        self._refuse_scan()
        return super()._fit(X, groups, given)

    def _options(self) -> dict[str, Any]:
        """Return the options of the named method: those that were set here, and ``options``."""
        chosen: dict[str, Any] = {"sweeps": 0 if self.privacy else self.sweeps}
        if self.align != "auto":
            chosen["align"] = self.align
        if self.aggregate is not None:
            chosen["aggregate"] = self.aggregate
        return {**chosen, **(self.options or {})}

    def _conclude(self, score: Score, outcome: Run) -> None:
        self.reconstruction_err_ = score.error
        seen = self._budget is None  # in a private fit whether there is a warning must not depend on rows
        if not self.components_.any() and (score.error > 0 or not seen):
            warnings.warn(
                f"The model is empty: no component of {len(self.components_)} was left after rounding. The noise level "
                "swamps the signal, or the clients have too few rows; try fewer components, fewer clients or cleaner "
                "data.",
                UserWarning,
                stacklevel=4,
            )

    def tiles(self, X: Any) -> list[Tile]:
        """Return every component as a tile of the rows of X (one matrix, or a list of clients), codes refitted."""
        data = self._new_data(X)
        counts = np.sum([support(x, self._codes(x), self.components_) for x in data], axis=0)
        rows = sum(x.shape[0] for x in data)
        names: list[Any] = self.features_ or list(range(self.components_.shape[1]))
        found = []
        for i, (h, used, hits) in enumerate(zip(self.components_, *counts, strict=True)):
            cells = int(used) * int(h.sum())
            precision = int(hits) / cells if cells else float("nan")
            found.append(Tile(i, [names[f] for f in np.flatnonzero(h)], int(used), rows, precision))
        return found

    def inverse_transform(self, X: Any) -> Array | list[Array]:
        """Return the reconstruction ``W o H`` (uint8) of 0/1 codes W; a list of codes gives a list."""
        check_is_fitted(self)
        found = [self._reconstruct(np.asarray(W)) for W in (X if clients.is_many(X) else [X])]
        return found if clients.is_many(X) else found[0]

    def _reconstruct(self, W: Array) -> Array:
        check_boolean(W)
        if W.shape[1] != len(self.components_):
            raise CofactorError(f"codes: expected {len(self.components_)} columns, found {W.shape[1]}.")
        return unpack(product(W, self.components_))

    def score(self, X: Any, y: Any = None) -> float:
        """Return ``1 - |X xor (W o H)| / |X|`` with codes refitted for X."""
        return 1 - self._score(X).error

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self.threshold is None
        tags.transformer_tags.preserves_dtype = []
        return tags
