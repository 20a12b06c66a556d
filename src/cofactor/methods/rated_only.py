"""Messages of the rated items only: a client receives and sends the columns in which it has ratings, and names them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse

from cofactor.method import OWN, Traits
from cofactor.methods.wrapped import Wrapped
from cofactor.ratings import Layout, observed
from cofactor.types import Array, Data, Local, Message, Shared

ITEMS = "items"


@dataclass(frozen=True)
class RatedOnly(Wrapped):
    """A masked method of which a client sees and sends only what concerns the items that it rated.

    The same sums over clients, and so the same factor: of items that a client has not rated its statistics are zeros.
    A message has ``|items|`` rows in place of m, and names them. It shows which items a client rated, and its size how
    many, also to whoever sees sizes only. Sums under masks need messages of one size: they are refused.
    """

    @property
    def layout(self) -> Layout:
        """As the method says."""
        return self.method.layout

    @cached_property
    def traits(self) -> Traits:
        """Messages have different sizes: they are put together item by item."""
        return replace(self.method.traits, additive=False, rowwise=None, together=None, sliced=ITEMS)

    def schema(self, n_features: int, t: int) -> dict[str, tuple[int, ...]]:
        """The items, and the method's arrays with one row for each of them."""
        inner = self.method.schema(n_features, t)
        return {ITEMS: (OWN,), **{name: (OWN, *shape[1:]) if shape else () for name, shape in inner.items()}}

    def step(self, data: Data, shared: Shared, local: Local, t: int, rng: np.random.Generator) -> tuple[Local, Message]:
        """Step on the rated columns of data and factor; nothing else of the factor is looked at."""
        items, own = rated(data)
        new, sent = self.method.step(own, shared._replace(factor=shared.factor[:, items]), local, t, rng)
        return new, sent._replace(arrays={ITEMS: items, **sent.arrays})

    def aggregate(self, shared: Shared, messages: list[Message], t: int) -> Shared:
        """Put every message into its places, and go on as the method does."""
        shapes = self.method.schema(shared.factor.shape[1], t)
        sums = {name: np.zeros(shape) for name, shape in shapes.items()}
        for message in messages:
            items = message.arrays[ITEMS]
            for name, shape in shapes.items():
                sums[name][items if shape else ()] += message.arrays[name]
        dtypes = {name: messages[0].dtype(name) for name in shapes}
        whole = Message(sums, float(sum(message.weight for message in messages)), dtypes=dtypes)
        return self.method.aggregate(shared, [whole], t)


def rated(data: Data) -> tuple[Array, Data]:
    """Return the rated items in order, and the ratings over them alone; without ratings the first item is named."""
    R = observed(data)
    items, place = np.unique(R.indices, return_inverse=True)
    if len(items) == 0:
        items = np.zeros(1, items.dtype)
    own = sparse.csr_matrix((R.data, place.astype(R.indices.dtype), R.indptr), shape=(R.shape[0], len(items)))
    return items.astype(np.int32), own
