"""Every option of ``cofactor fit``, written once: the command line and configuration files both read it here.

Nothing is imported, so that ``cofactor --help`` answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def option(default: Any, text: str, *names: str) -> Any:
    """Declare an option of ``cofactor fit``: its default, what it says of itself, and its names where they differ."""
    return field(default=default, metadata={"help": text, "names": names})


PANELS = {
    "What is computed": "rank method boolean rounds tol seed alpha_w alpha_h l1_ratio option",
    "Clients, features, preparation": (
        "group_by split by label alpha features layer leave_out row_weights cell_weights prepare image"
    ),
    "Ratings": "ratings users_as_clients rated_only titles holdout holdout_share duplicates",
    "Privacy": "epsilon delta unit clip rows secure curious keys ledger insecure_noise_seed",
    "Where and how it runs": "participation engine device scheduler",
}
"""Headings of the help, and the options below each."""


def panel(name: str) -> str:
    """Return the heading of an option; those of none are about what is written."""
    return next((title for title, names in PANELS.items() if name in names.split()), "Output")


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run; ``why`` says why a method was chosen, ``forgotten`` who was taken out."""

    inputs: list[str] = field(metadata={"help": "Files; each is a client."})
    rank: int = field(metadata={"help": "Number of components.", "names": ("--rank", "-k")})
    method: str = option("exact", "A name from `cofactor methods`, or auto.")
    boolean: bool = option(False, "0/1 data: a Boolean method.", "--boolean")
    rounds: int | None = option(
        None, "The most rounds; iterations of methods on blocks. Default: the method's, or 200."
    )
    tol: float = option(1e-4, "Stop when the loss falls by less than this share.")
    seed: int = option(0, "Seed of the run.")
    alpha_w: float = option(0.0, "Penalty of the codes, as alpha_W of scikit-learn's NMF; with exact.", "--alpha-W")
    alpha_h: float | None = option(None, "Penalty of the factor, as alpha_H. Default: that of the codes.", "--alpha-H")
    l1_ratio: float = option(0.0, "With --alpha-W or --alpha-H: the share of it that is of absolute values.")
    participation: float = option(1.0, "Share of clients in each round.")
    engine: str = option("inline", "What carries the messages: inline, mpi, dask, flare.")
    device: str | None = option(None, "With --engine inline: a device of torch that does the arithmetic, as cuda.")
    scheduler: str | None = option(None, "With --engine dask: the address of the scheduler, as tcp://host:8786.")
    features: str = option("same", "Match features by name: same, intersection, union, position.")
    layer: str | None = option(None, "Layer of h5ad files.")
    leave_out: str | None = option(None, "Columns or features that are left out, as patient_id,age.")
    cell_weights: str | None = option(
        None, "Layer of h5ad files that says how much each cell counts; one of 0 was not observed."
    )
    row_weights: str | None = option(None, "Column (obs of h5ad files) that says how often each row counts.")
    prepare: str | None = option(None, "Steps before the fit, as library,log1p,hvg=2000; also tfidf, scale, binarize.")
    group_by: str | None = option(None, "One file: a column that names the client.")
    split: int | None = option(None, "One file: simulate this many clients.")
    by: str = option("iid", "With --split: iid, rows, dirichlet or sorted.")
    label: str | None = option(None, "With --by dirichlet or sorted: the label column.")
    alpha: float = option(0.5, "With --by dirichlet: small is skewed.")
    image: str | None = option(None, "Features are pixels of a picture, as 28x28.")
    ratings: bool = option(False, "Files are triples user,item,rating; each file is a client.", "--ratings")
    users_as_clients: bool = option(
        False,
        "With --ratings: every user of one file is a client, which sends far more.",
        "--users-as-clients",
    )
    rated_only: bool = option(
        False,
        "With --ratings: messages of rated items only, which show what a client rated.",
        "--rated-only",
    )
    titles: str | None = option(None, "With --ratings: a table id,title of the items, for lists and the report.")
    holdout: str | None = option(None, "With --ratings: hold some out to judge by; time, random or user.")
    holdout_share: float = option(0.2, "With --holdout: the share held out.")
    duplicates: str = option("error", "With --ratings: ratings given twice; error, mean, or sum of clicks.")
    epsilon: float | None = option(None, "Privacy: the total of the whole run.")
    delta: float | None = option(None, "With --epsilon: below 1 / number of units.")
    unit: str | None = option(
        None, "With --epsilon: record (one row, there or not) or client (what it holds, replaced by nothing)."
    )
    clip: float | None = option(None, "With --epsilon: bound of a row, or of a client's update.")
    rows: int | None = option(None, "With --epsilon: the rows of all clients, if public; delta is checked against it.")
    ledger: str | None = option(
        None, "With --epsilon: the ledger over all runs on these data, as site.jsonl; see `cofactor ledger new`."
    )
    secure: bool = option(False, "Sum under masks: the server sees sums only.", "--secure")
    keys: str | None = option(None, "With --secure: folder of key files that were exchanged beforehand.")
    curious: int | None = option(None, "With --epsilon and --secure: clients that may use what they know. Default: 1.")
    insecure_noise_seed: int | None = option(
        None, "With --epsilon, for tests: noise that can be repeated; private: no."
    )
    why: str = ""
    forgotten: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
