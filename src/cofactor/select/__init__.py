"""Choose a rank and judge components: masked cross-validation, stability, passports; all from summaries."""

from cofactor.kinds.passports import Passport, passports
from cofactor.select.rank import RankScan, select_rank

__all__ = ["Passport", "RankScan", "passports", "select_rank"]
