"""cofactor: factorize together what cannot be pooled."""

from cofactor.combine import summaries
from cofactor.engines.rounds import Run, run

__version__ = "0.1.0"
__all__ = ["Run", "run", "summaries"]
