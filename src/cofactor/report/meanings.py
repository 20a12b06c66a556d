"""What the numbers of a report mean: another thing for every kind of data."""

from __future__ import annotations

from typing import NamedTuple

from cofactor.methods import catalog
from cofactor.report.contents import Folder

OWN = "There are no fits of clients alone to compare with: "
LARGE = OWN + "the data are large, and each client would have to be fitted a second time."
SECURE = OWN + "with secure summation nothing of a single client is to be seen."
LACKING = OWN + "clients lack features, so that components of their own do not compare with the shared ones."


class Meaning(NamedTuple):
    """Words for one kind of data; ``alone`` says why clients are not fitted alone, and is empty where they are.

    Where they are, ``owns`` says what else there is to know of these fits.

    ``pools`` and ``ranks`` say whether there is a pooled bound, and a rank scan, to ask for.
    """

    error: str = "Relative error of each client's rows with the shared factor"
    spread: str = "RMSD"
    loss: str = (
        "The method's own objective, half the squared distance summed over clients. Methods that average factors "
        "report it for each client's own factor; errors of the final factor stand under Clients."
    )
    row: str = "row"
    feature: str = "feature"
    alone: str = ""
    owns: str = ""
    pools: bool = False
    ranks: bool = False


REAL = Meaning(pools=True, ranks=True)
MEANINGS = {
    "real": REAL,
    "blocks": REAL._replace(
        alone=OWN + "each holds blocks of one matrix, which are a problem to solve only together.",
        loss="The method's own objective, half the squared distance summed over the blocks of all clients.",
    ),
    "gaps": Meaning(
        error="Relative error of the observed cells of each client's rows with the shared factor",
        loss="The method's own objective over the observed cells, summed over clients.",
        alone=OWN + "cells are missing, and components of its own would be of other cells at every client.",
    ),
    "boolean": Meaning(
        error="Wrong cells of each client's rows with the shared factor, over its ones",
        loss="The method's own objective, summed over clients: half the wrong cells, or half a squared distance "
        "where bits are not settled yet.",
        alone=OWN + "parts of an OR do not add up, so components have no share of it and no passport.",
    ),
    "ratings": Meaning(
        error="Error of each client's observed ratings with the shared factor, relative to predicting 0",
        spread="RMSE",
        loss="The method's own objective over the observed ratings, penalties included.",
        row="user",
        feature="item",
        alone=OWN + "the few ratings of a client do not make components of its own.",
    ),
    "clusters": Meaning(
        error="Distance of each client's rows to the nearest centre, relative to the size of the rows",
        loss="The method's own objective: half the squared distances, summed over clients.",
        alone=OWN + "a row belongs to one centre, so components have no share of it and no passport.",
    ),
}


DIVERGENT = REAL._replace(
    loss="The method's own objective, the divergence of the model from the data, summed over clients.",
    owns="Own fits are least squares, which is what this error measures; the run minimizes its divergence instead.",
)
"""Words for a loss that the error does not measure."""
BETWEEN = MEANINGS["clusters"]._replace(
    error="Distance of each client's rows to their points between the centres, relative to the size of the rows",
    alone=OWN + "shares of centres add up to 1 in every row, so components have no other share and no passport.",
)
"""Words for rows that lie between centres."""
OTHERS = {"exact-beta": DIVERGENT, "simplex": BETWEEN}
"""Words by method, where those of the kind of data would be wrong."""


def kind_of(folder: Folder) -> str:
    """Return what the data of a run are, by its method."""
    entry = catalog.CATALOG.get(folder.manifest.method)
    return entry.kind if entry else "real"


def meaning(folder: Folder) -> Meaning:
    """Return the words for the data of a run."""
    found = OTHERS.get(folder.manifest.method) or MEANINGS[kind_of(folder)]
    lacking = folder.manifest.config.get("features") == "union" and folder.evaluation.match is None
    return found._replace(alone=found.alone or LACKING, pools=False, ranks=False) if lacking else found


def why_alone(folder: Folder) -> str:
    """Return why no client of this run was compared with a fit of its own; nothing where one was, or should be."""
    if folder.withheld or folder.passports is not None or folder.evaluation.match is not None:
        return ""
    if any(c.local_error is not None for c in folder.evaluation.clients):
        return ""
    secure = folder.manifest.config.get("secure") is True
    return SECURE if secure else meaning(folder).alone or LARGE
