"""FederatedKMeans: clusters of rows that may not be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofactor.data.harmonise import How
from cofactor.engines.contract import Callback, Engine
from cofactor.engines.outcome import Run
from cofactor.estimators import clients
from cofactor.estimators.ending import nothing, warn
from cofactor.estimators.given import NOTHING, Given
from cofactor.estimators.keeping import Kept
from cofactor.kinds.kind import Score
from cofactor.kinds.numbers import CLUSTERED
from cofactor.method import Method
from cofactor.methods.build import Facts
from cofactor.methods.clusters import labels
from cofactor.plan import is_whole
from cofactor.types import Array, CofactorError, Data


class FederatedKMeans(ClusterMixin, Kept):
    """Cluster centres H shared by all clients; which row belongs to which of them stays with the client.

    Clients begin by clustering alone (no centre of fewer than two rows leaves), and the server runs weighted k-means++
    on their centres: a start that finds clusters that only one client has. Clients with a single row have no say in the
    start, and where all are so small it is random, at the scale of the data from the second round on.

    Parameters
    ----------
    n_clusters : the number of clusters k.
    method : ``"k-means"``, whose rounds are those of pooled k-means, or ``"simplex"``: codes are shares >= 0 that add
        up to 1, so that a row may lie between clusters; its label is the largest share. Or a method object.
    rounds : the most rounds to run; None is 200, or 50 with ``tol=0``.
    tol : stop when the loss falls by less than this share in three rounds; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    features : how features of clients are matched by name: "same" (in any order), "intersection", or "position".
    layer : of AnnData, the layer to read instead of ``X`` ("raw" for the raw matrix).
    prepare : steps that are done with every row first, and again by ``predict`` and ``transform``, as
        ``"library,log1p,hvg=2000,scale"`` (:mod:`cofactor.data.steps`).
    options : options of the named method, such as ``{"restarts": 50}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    cluster_centers_, components_ : the shared centres H (k x m).
    labels_ : the cluster of every row: one array in the order of the rows, or a list of arrays for a list of clients.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``: one at the row's cluster and
        zeros, or shares.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    inertia_ : ``|X - W H|^2`` over all rows: the squared distances to the centres, or to the points between them.
    history_ : one :class:`~cofactor.engines.history.Round` per round.
    n_rounds_ : rounds that were run.

    Examples
    --------
    >>> import numpy as np
    >>> from cofactor import FederatedKMeans
    >>> shops = [np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]]), np.array([[9.0, 9], [8, 9], [8, 8], [0, 0]])]
    >>> model = FederatedKMeans(2, random_state=0).fit(shops)
    >>> [len(set(found)) for found in model.labels_]
    [2, 2]
    >>> bool(model.predict([[1, 1]])[0] == model.labels_[0][0])
    True
    """

    _dtype = (np.float64, np.float32)
    _kind = CLUSTERED
    remade = "k-means"
    told = ("features", "layer")

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str | Method = "k-means",
        rounds: int | None = None,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
        features: How = "same",
        layer: str | None = None,
        prepare: Any = None,
        options: dict[str, Any] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.rounds = rounds
        self.tol = tol
        self.participation = participation
        self.random_state = random_state
        self.engine = engine
        self.features = features
        self.layer = layer
        self.prepare = prepare
        self.options = options
        self.callbacks = callbacks

    def _rank(self, facts: Facts, data: list[Data]) -> int:
        n, k = facts.rows, self.n_clusters
        if not (is_whole(k) and 1 <= k <= (n or k)):
            raise CofactorError(f"n_clusters: expected a whole number from 1 to n_samples={n}, found {k!r}.")
        made = self._about.rank
        if made not in (None, k):
            raise CofactorError(f"n_clusters is {k}, but the method was made with rank {made}.")
        return int(k)

    def _fixed(self, H: Array) -> Array:
        return np.asarray(self._kind.check(clients.matrix(H, "H"), "H"))

    def _conclude(self, score: Score, outcome: Run) -> None:
        self.inertia_ = float(np.sum(outcome.findings, axis=0)[0])
        warn(outcome, self.tol, ConvergenceWarning)
        nothing(outcome, score, {})

    def _fit(self, X: Any, groups: Any, given: Given = NOTHING) -> clients.Clients:
        held = super()._fit(X, groups, given)
        found = labels(self.codes_)
        listed = clients.is_many(X) or not found  # there are no codes of clients on other machines
        self.labels_: Array | list[Array] = found if listed else clients.in_order(found, held.rows)
        return held

    @property
    def cluster_centers_(self) -> Array:
        """The centres (k x m)."""
        return self.components_

    def fit_predict(self, X: Any, y: Any = None, groups: Any = None) -> Array | list[Array]:
        """Fit and return ``labels_``."""
        return self.fit(X, y, groups).labels_

    def predict(self, X: Any) -> Array | list[Array]:
        """Return the cluster of new rows from the centres alone; a list of clients gives a list."""
        check_is_fitted(self)
        found = labels([self._codes(x) for x in self._new_data(X)])
        return found if clients.is_many(X) else found[0]

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances of rows to their centre, or to their point between centres."""
        tallies = [self._kind.tally(None, x, self._codes(x), self.components_) for x in self._new_data(X)]
        return -float(np.sum(tallies, axis=0)[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
