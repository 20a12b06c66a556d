"""Topics of a stored news corpus; every label (time window, section, newsgroup) is a client.

COFACTOR_DATA=FOLDER python examples/news.py news_3windows --rank 10
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.preprocessing import normalize

from cofactor import FederatedNMF
from cofactor.data import datasets


def main() -> None:
    """Load, fit, print the top words of every topic and each client's share of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", default="news_3windows")
    parser.add_argument("--rank", type=int, default=10)
    options = parser.parse_args()

    news = datasets.load(options.name)
    filled = np.asarray(news.X.sum(axis=1)).ravel() > 0
    X, labels = normalize(news.X[filled]), news.labels[filled]
    model = FederatedNMF(options.rank, rounds=200, random_state=0).fit(X, groups=labels)
    print(f"{options.name}: clients {', '.join(map(str, model.clients_))}")
    print(f"relative error {model.reconstruction_err_:.3f} after {model.n_rounds_} rounds")
    used = np.array([W.sum(axis=0) for W in model.codes_])
    for i, component in enumerate(model.components_):
        words = news.feature_names[np.argsort(-component)[:8]]
        print(f"topic {i}: {' '.join(words)}; used by {np.round(used[:, i] / used[:, i].sum(), 2)}")


if __name__ == "__main__":
    main()
