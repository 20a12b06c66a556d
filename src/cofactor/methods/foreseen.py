"""What can be expected of a private run before it begins: its noise against its signal, from public facts alone."""

from __future__ import annotations

from cofactor.method import Method
from cofactor.privacy.accountant import Unit
from cofactor.privacy.allowance import Private

CLEAR, EVEN, LOST = 0.1, 1.0, 2.0
"""Noise against signal: below the first little is lost, from the second on noise is the larger, from the last on little
is left.

What dp-moments kept of all that a factor gains over the mean row, by this ratio: digits 98 % (.08), text 93 % (.09) and
30 % (.6), faces 95 % (.18) and 65 % (1.1), single cells 0 % (4.4); and dp-nmf of digits: 83 % (.08), 44 % (.5), 17 %
(1.1), 0 % (2). Strong patterns stand out earlier than equal ones. Votes of Boolean factors: nothing at 2.4 and above.
"""
DROWNED = (
    "The second moment would drown in noise: everything will be spent on the mean row, and components will be "
    "pieces of it and a constant row. They fit at least as well as the mean row, and say nothing of how "
    "features vary together. More units, fewer features or a larger epsilon would help."
)


def expected(ratio: float) -> str:
    """Say what noise of so many times the signal of an average component leaves to be seen."""
    found = f"noise is {float(f'{ratio:.2g}'):g} times the signal of an average component"
    if ratio < CLEAR:
        return f"The result can be expected to be useful, close to one without privacy: {found}."
    if ratio < LOST:
        return f"The result can be expected to be coarse: {found}, so that only stronger components stand out."
    return (
        f"Little can be expected to stand out of the noise: {found}. More units, fewer features, a lower rank or a "
        "larger epsilon would help."
    )


def foreseen(method: Method, *, clients: int, features: int | None, rows: int | None) -> str:
    """Return what must be known of a private run beforehand; nothing where its noise is smaller than its signal.

    The number of rows counts where it is public. Where it is not, methods that find out by themselves what they can
    release say so in the end, and of the others it is said how many rows would be enough.
    """
    allowance = method.traits.allowance
    if allowance is None or features is None:
        return ""
    private: Private = method  # type: ignore[assignment]
    sizes = {"features": features, "clients": clients}
    units = clients if allowance.privacy.unit is Unit.CLIENT else rows
    if units is None:
        if private.drowns(units=1, **sizes):
            return ""
        least = private.noise_over_signal(units=1, **sizes)
        return (
            f"an average component is as large as the noise from about {least:,.0f} rows of all clients together on; "
            "with fewer, little can be expected to stand out. A public number of rows (`rows`) is held against it."
        )
    ratio = private.noise_over_signal(units=units, **sizes)
    if ratio < EVEN or private.drowns(units=units, **sizes):
        return ""
    text = expected(ratio).replace("units", "clients" if allowance.privacy.unit is Unit.CLIENT else "rows")
    return text[0].lower() + text[1:]
