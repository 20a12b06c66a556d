"""FederatedKMeans: clusters of rows that may not be pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofactor.engines.history import Stop
from cofactor.engines.rounds import Callback, Engine, Run, run
from cofactor.estimators import clients
from cofactor.estimators.base import Federated, check_kind
from cofactor.local import kmeans
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.clusters import labels
from cofactor.types import Array, CofactorError, Data


class FederatedKMeans(ClusterMixin, Federated):
    """Cluster centres H shared by all clients; which row belongs to which of them stays with the client.

    Clients begin by clustering alone (no centre of fewer than two rows leaves), and the server runs weighted k-means++
    on their centres: a start that finds clusters that only one client has. Clients with a single row have no say in the
    start, and where all are so small it is random, at the scale of the data from the second round on.

    Parameters
    ----------
    n_clusters : the number of clusters k.
    method : ``"k-means"``, whose rounds are those of pooled k-means, or ``"simplex"``: codes are shares >= 0 that add
        up to 1, so that a row may lie between clusters; its label is the largest share. Or a method object.
    rounds : the most rounds to run.
    tol : stop when the loss falls by less than this share in three rounds; 0 runs all rounds.
    participation : the share of clients drawn for each round.
    random_state : seed; an int gives the same numbers everywhere.
    engine : what carries the messages; None runs all clients in this process.
    options : options of the named method, such as ``{"restarts": 50}``.
    callbacks : functions of (round, shared) called after every round; a true answer ends the fit.

    Attributes
    ----------
    cluster_centers_, components_ : the shared centres H (k x m).
    labels_ : the cluster of every row: one array in the order of the rows, or a list of arrays for a list of clients.
    codes_ : list of the codes W_j (n_j x k), one per client in the order of ``clients_``: one at the row's cluster and
        zeros, or shares.
    clients_ : names of the clients: positions in the list, or the distinct groups.
    inertia_ : ``sum_i |x_i - h_label(i)|^2`` over all rows.
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

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        method: str | Method = "k-means",
        rounds: int = 50,
        tol: float = 1e-4,
        participation: float = 1.0,
        random_state: Any = None,
        engine: Engine | None = None,
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
        self.options = options
        self.callbacks = callbacks

    def _check(self, X: Any, client: Any) -> Data:
        return clients.check_one(X, client, signed=True)

    def _method(self, data: list[Data]) -> Method:
        n, k = sum(X.shape[0] for X in data), self.n_clusters
        if not isinstance(k, int | np.integer) or not 1 <= k <= n:
            raise CofactorError(f"n_clusters: expected a whole number from 1 to n_samples={n}, found {k!r}.")
        if isinstance(self.method, str):
            check_kind(self.method, "FederatedKMeans")
            return catalog.make(self.method, int(k), **(self.options or {}))
        if self.method.rank != k:
            raise CofactorError(f"n_clusters is {k}, but the method was made with rank {self.method.rank}.")
        return self.method

    def _run(self, method: Method, data: list[Data]) -> Run:
        self._made = method
        return run(
            method,
            data,
            rounds=self.rounds,
            seed=self._seed(),
            engine=self.engine,
            participation=self.participation,
            stop=Stop(self.tol),
            callbacks=self.callbacks,
        )

    def _conclude(self, outcome: Run, data: list[Data]) -> None:
        self.inertia_ = float(sum(self._inertia(X, W) for X, W in zip(data, self.codes_, strict=True)))

    def _inertia(self, X: Data, W: Array) -> float:
        squares = kmeans.distances(X, self.components_)
        return float(np.take_along_axis(squares, W.argmax(axis=1)[:, None], axis=1).sum())

    def _fit(self, X: Any, groups: Any) -> clients.Clients:
        held = super()._fit(X, groups)
        found = labels(self.codes_)
        self.labels_: Array | list[Array] = found if clients.is_many(X) else clients.in_order(found, held.rows)
        return held

    def _codes(self, X: Data) -> Array:
        return self._made.refit(X, self.components_)

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
        """Return minus the sum of squared distances of rows to the centre of their cluster."""
        data = self._new_data(X)
        return -float(sum(self._inertia(x, self._codes(x)) for x in data))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
