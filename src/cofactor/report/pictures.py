"""Small pictures inside the page: ink on nothing. The page turns black ink to white in the dark; teal suits both."""

from __future__ import annotations

import base64
import io

import numpy as np

from cofactor.local.arrays import block_means
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
    image = block_means(image, SIDE)
    return data_uri(image / (image.max() or 1.0))
