"""For the API pages: docstrings as mkdocstrings reads them.

Roles of Sphinx (``:class:`~a.b.C```) become plain code, what stands behind the colon of a parameter is words, and
examples are fenced.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":[a-z]+:`(~?)([^`]+)`")
TITLE = re.compile(r"^(Parameters|Attributes|Examples)\n-+$", re.MULTILINE)
ENTRY = re.compile(r"^(\w[\w, ]*?) : (.*)$", re.MULTILINE)

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


def plain(text: str) -> str:
    """Return a docstring without roles, its entries as names with words below.

    >>> plain("a :class:`~cofactor.plan.Plan`, or :func:`fit`")
    'a ``Plan``, or ``fit``'
    >>> plain("Parameters\\n----------\\nk : the rank.")
    'Parameters\\n----------\\nk\\n    the rank.'
    """
    text = ROLE.sub(
        lambda m: f"``{m[2].rsplit('.', 1)[-1] if m[1] else m[2]}``", text
    )
    begun = TITLE.search(text)
    end = len(text) if begun is None else begun.start()
    head = EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```", text[:end])
    return head + ENTRY.sub(r"\1\n    \2", text[end:])


class Roles(griffe.Extension):
    """Changes docstrings as they are read."""

    def on_instance(self, *, obj: Any, **more: Any) -> None:
        """Change the docstring of whatever was found."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
