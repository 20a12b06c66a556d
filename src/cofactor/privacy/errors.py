"""The errors of privacy: each kind of refused input has its own name, and raising one changes no state."""

from __future__ import annotations

from cofactor.types import CofactorError


class PrivacyError(CofactorError):
    """Base of every refusal that protects a client: nothing was released."""


class MissingExtraError(PrivacyError):
    """An optional package is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed. Run: pip install 'cofactor[{extra}]'.")


class ParameterError(PrivacyError):
    """A privacy parameter (epsilon, delta, multiplier, clip, ...) is outside its range."""


class BudgetError(PrivacyError):
    """A release would cost more than the budget has left; it is refused before it happens."""


class UnitError(PrivacyError):
    """Costs of different units (record, client) cannot be added up."""


class LedgerError(PrivacyError):
    """Base of what is wrong with a ledger: nothing is released, and nothing is added up."""


class ReleasedError(LedgerError):
    """A round may have been released, and what came of it is lost: it is charged, and never repeated."""


class DamagedLedgerError(LedgerError):
    """Lines of a ledger were changed, removed, moved or added, or cannot be read."""


class UnsignedLedgerError(LedgerError):
    """A ledger, or a line of it, is not signed by the key that it names."""


class OtherDataError(LedgerError):
    """A ledger is of other data than those of the run."""


class AuditError(PrivacyError):
    """An audit cannot see even a mechanism without noise, so its verdict says nothing."""


class KeyFileError(PrivacyError):
    """A file with a key is missing, damaged, readable by others, or does not fit its pair."""


class HostileInputError(PrivacyError):
    """Base of what a faulty or hostile client or server can send."""


class NotFiniteError(HostileInputError):
    """A value is NaN or infinite."""


class OutOfRangeError(HostileInputError):
    """A value is too large: for the fixed-point grid, or for the clip it was promised to obey."""


class ShapeError(HostileInputError):
    """An array has another shape, or a message another set of arrays, than declared."""


class DtypeError(HostileInputError):
    """An array has another dtype than declared."""


class WeightError(HostileInputError):
    """A weight is negative."""


class UnknownClientError(HostileInputError):
    """A message names a client that is no participant of this round."""


class DuplicateError(HostileInputError):
    """The same client answered twice in one phase."""


class ReplayError(HostileInputError):
    """A message belongs to another session."""


class OrderError(HostileInputError):
    """A message came in the wrong phase."""


class TruncatedError(HostileInputError):
    """A message or a share is shorter or longer than its format."""


class MisaddressedError(HostileInputError):
    """A share is addressed to another client than the one that received it."""


class ForgedShareError(HostileInputError):
    """A share fails its authentication, or the secret rebuilt from shares is not the one announced."""


class SignatureError(HostileInputError):
    """Round keys are not signed by the long-term key of the client they name."""


class ThresholdError(HostileInputError):
    """Fewer clients answered than the threshold: the sum stays hidden."""


class RevealError(HostileInputError):
    """A request would make a client reveal both secrets of a peer."""
