"""The console of the command line."""

from __future__ import annotations

from typing import Any

import rich.console


class Console(rich.console.Console):
    """A console that prints texts as they are: names of clients, files and packages may hold brackets and colons."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, **how)
