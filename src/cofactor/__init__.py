"""cofactor: factorize together what cannot be pooled."""

from cofactor.combine import summaries
from cofactor.engines.rounds import Run, run
from cofactor.estimators.boolean import FederatedBMF
from cofactor.estimators.nmf import FederatedNMF

__version__ = "0.1.0"
__all__ = ["FederatedBMF", "FederatedNMF", "Run", "run", "summaries"]
