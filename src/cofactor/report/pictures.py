"""Small pictures inside the page: ink on nothing. The page turns black ink to white in the dark; teal suits both."""

from __future__ import annotations

import base64
import io

import numpy as np

from cofactor.types import Array

SIDE, LEVELS = 64, 32
BLACK, TEAL = (0, 0, 0), (42, 157, 150)


def data_uri(values: Array, ink: tuple[int, int, int] = BLACK) -> str:
    """Return a matrix of values in [0, 1] as a PNG data URI, 0 transparent and 1 full ink."""
    from matplotlib.image import imsave

    alpha = np.rint(np.clip(values, 0, 1) * LEVELS) * (255 / LEVELS)
    pixels = np.zeros((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3], pixels[..., 3] = ink, alpha.astype(np.uint8)
    buffer = io.BytesIO()
    imsave(buffer, pixels, format="png", metadata={"Software": "cofactor"}, pil_kwargs={"optimize": True})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def component(row: Array, shape: tuple[int, int], *, order: str = "C") -> str:
    """Return one component as a picture, scaled to its own largest weight."""
    image = np.abs(row.reshape(shape, order="F" if order == "F" else "C"))
    image = shrink(image)
    return data_uri(image / (image.max() or 1.0))


def shrink(image: Array, side: int = SIDE) -> Array:
    """Take block means until no side is longer than ``side``."""
    height, width = image.shape
    block = -(-max(height, width) // side)
    if block == 1:
        return image
    rows, columns = (np.arange(0, n, block) for n in (height, width))
    sums = np.add.reduceat(np.add.reduceat(image, rows, axis=0), columns, axis=1)
    return sums / np.outer(np.diff(np.append(rows, height)), np.diff(np.append(columns, width)))
