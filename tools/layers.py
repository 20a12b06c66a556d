"""Check the layer rule: each folder of the package imports only from those above it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "cofactor"
LAYERS = [
    {"types"},
    {"schedules"},
    {"method"},
    {"local"},
    {"metrics"},
    {"boolean"},
    {"masked"},
    {"combine"},
    {"privacy"},
    {"methods"},
    {"engines"},
    {"select"},
    {"data"},
    {"estimators"},
    {"report"},
    {"runs"},
    {"cli"},
]
HEIGHT = {name: i for i, layer in enumerate(LAYERS) for name in layer}


def imports(path: Path) -> set[str]:
    """Return the folders (or top-level modules) of cofactor that a file imports, lazily or not."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "cofactor" else {node.module}
            )
    return {name.split(".")[1] for name in found if name.startswith("cofactor.")}


def violations() -> list[str]:
    """Return one line per import that points downwards."""
    lines = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if place == "__init__":
            continue
        if place not in HEIGHT:
            lines.append(f"{path}: {place!r} is not in the list of layers")
            continue
        lines += [
            f"{path}: {place} imports {other}, which stands below it"
            for other in sorted(imports(path))
            if HEIGHT.get(other, -1) > HEIGHT[place]
        ]
    return lines


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) or f"layers: {len(HEIGHT)} in order")
    sys.exit(bool(found))
