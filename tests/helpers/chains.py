"""Entries of chains as they were before they were chained."""


def unchained(entry):
    """Return an entry without what its chain added to it."""
    return {name: value for name, value in entry.items() if name not in ("previous", "hash", "signature")}
