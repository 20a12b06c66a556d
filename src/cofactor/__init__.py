"""cofactor: factorize together what cannot be pooled.

Names are loaded when they are first used, so that ``cofactor.local``, ``cofactor.combine`` and ``cofactor.methods``
import with numpy, scipy and numba alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofactor.combine import summaries
    from cofactor.engines.rounds import Run, run
    from cofactor.estimators.boolean import FederatedBMF
    from cofactor.estimators.clusters import FederatedKMeans
    from cofactor.estimators.nmf import FederatedNMF
    from cofactor.estimators.recommend import FederatedMF
    from cofactor.privacy.plan import Privacy
    from cofactor.select import passports, select_rank

__version__ = "0.1.0"
__all__ = [
    "FederatedBMF",
    "FederatedKMeans",
    "FederatedMF",
    "FederatedNMF",
    "Privacy",
    "Run",
    "passports",
    "run",
    "select_rank",
    "summaries",
]

_HOME = {
    "FederatedBMF": "cofactor.estimators.boolean",
    "FederatedKMeans": "cofactor.estimators.clusters",
    "FederatedMF": "cofactor.estimators.recommend",
    "FederatedNMF": "cofactor.estimators.nmf",
    "Privacy": "cofactor.privacy.plan",
    "Run": "cofactor.engines.rounds",
    "passports": "cofactor.select",
    "run": "cofactor.engines.rounds",
    "select_rank": "cofactor.select",
    "summaries": "cofactor.combine",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cofactor' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
