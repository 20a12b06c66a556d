"""cofactor: factorize together what cannot be pooled.

Names are loaded when they are first used, so that ``cofactor.local``, ``cofactor.combine`` and ``cofactor.methods``
import with numpy and scipy alone, and wait for numba until a kernel is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cofactor.combine import summaries
    from cofactor.engines.loop import run
    from cofactor.engines.outcome import Run
    from cofactor.estimators.bmf import FederatedBMF
    from cofactor.estimators.clustering import FederatedKMeans
    from cofactor.estimators.mf import FederatedMF
    from cofactor.estimators.nmf import FederatedNMF
    from cofactor.kinds.passports import passports
    from cofactor.plan import Plan
    from cofactor.privacy.allowance import Privacy
    from cofactor.select.rank import select_rank

__version__ = "0.1.0"
__all__ = [
    "FederatedBMF",
    "FederatedKMeans",
    "FederatedMF",
    "FederatedNMF",
    "Plan",
    "Privacy",
    "Run",
    "passports",
    "run",
    "select_rank",
    "summaries",
]

_HOME = {
    "FederatedBMF": "cofactor.estimators.bmf",
    "FederatedKMeans": "cofactor.estimators.clustering",
    "FederatedMF": "cofactor.estimators.mf",
    "FederatedNMF": "cofactor.estimators.nmf",
    "Plan": "cofactor.plan",
    "Privacy": "cofactor.privacy.allowance",
    "Run": "cofactor.engines.outcome",
    "passports": "cofactor.select",
    "run": "cofactor.engines.loop",
    "select_rank": "cofactor.select",
}
_ROOMS = {"summaries": "cofactor.combine.summaries"}
"""Modules that are names of the package too."""


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(_ROOMS[name])
    if name not in _HOME:
        raise AttributeError(f"module 'cofactor' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_ROOMS])
