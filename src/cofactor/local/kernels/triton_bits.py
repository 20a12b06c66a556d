"""Cover and errors of packed rows, one row a program, with its words in registers: Triton, for CUDA devices."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

TILE = 1024
"""Words of the factor that a program looks at at a time."""


@triton.jit
def _ones(words):  # type: ignore[no-untyped-def]
    # in bits, pairs, nibbles and bytes at once
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return ((words * 0x0101010101010101) >> 56).to(tl.int32)


@triton.jit
def _uses(code, j, CODES: tl.constexpr):  # type: ignore[no-untyped-def]
    word = tl.sum(tl.where(tl.arange(0, CODES) == j // 64, code, 0), axis=0)
    return ((word >> (j % 64)) & 1) != 0


@triton.jit
def _covered(code, H, q, K: tl.constexpr, WORDS: tl.constexpr, CODES: tl.constexpr):  # type: ignore[no-untyped-def]
    # what a code covers, and what it covers twice
    place = tl.arange(0, WORDS)
    once, twice = tl.zeros((WORDS,), tl.int64), tl.zeros((WORDS,), tl.int64)
    for j in range(K):
        if _uses(code, j, CODES):
            h = tl.load(H + j * q + place, mask=place < q, other=0)
            twice |= once & h
            once |= h
    return once, twice


@triton.jit(do_not_specialize=["q"])
def _row_counts(  # type: ignore[no-untyped-def]
    X, W, H, hits, excess, q, K: tl.constexpr, WORDS: tl.constexpr, CODES: tl.constexpr, HELD: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    place, part = tl.arange(0, WORDS), tl.arange(0, CODES)
    x = tl.load(X + row * q + place, mask=place < q, other=0)
    code = tl.load(W + row * HELD + part, mask=part < HELD, other=0)
    once, _ = _covered(code, H, q, K, WORDS, CODES)
    tl.store(hits + row, tl.sum(_ones(x & once), axis=0).to(tl.int64))
    tl.store(excess + row, tl.sum(_ones(once & ~x), axis=0).to(tl.int64))


@triton.jit(do_not_specialize=["q"])
def _greedy(  # type: ignore[no-untyped-def]
    X, W, H, out, q, K: tl.constexpr, WORDS: tl.constexpr, CODES: tl.constexpr, HELD: tl.constexpr, SOME: tl.constexpr
):
    # A key sorts by gain, and of equal gains the lowest component comes first.
    row = tl.program_id(0).to(tl.int64)
    place, part, some = tl.arange(0, WORDS), tl.arange(0, CODES), tl.arange(0, SOME)
    x = tl.load(X + row * q + place, mask=place < q, other=0)
    code = tl.load(W + row * HELD + part, mask=part < HELD, other=0)
    cover, _ = _covered(code, H, q, K, WORDS, CODES)
    moves = True
    while moves:
        best = tl.full((SOME,), -1, tl.int64)
        for low in range(0, K, SOME):
            those = low + some
            seen = (those[:, None] < K) & (place[None, :] < q)
            new = tl.load(H + those[:, None] * q + place[None, :], mask=seen, other=0) & ~cover[None, :]
            gains = tl.sum(2 * _ones(new & x[None, :]) - _ones(new), axis=1).to(tl.int64)
            best = tl.maximum(best, gains * K + (K - 1 - those))
        top = tl.max(best, axis=0)
        if top >= K:
            chosen = K - 1 - top % K
            code |= tl.where(part == chosen // 64, tl.full((CODES,), 1, tl.int64) << (chosen % 64), 0)
            cover |= tl.load(H + chosen * q + place, mask=place < q, other=0)
        else:
            _, twice = _covered(code, H, q, K, WORDS, CODES)
            worst = tl.full((), K, tl.int64)
            for j in range(K):
                if _uses(code, j, CODES):
                    fresh = tl.load(H + j * q + place, mask=place < q, other=0) & ~twice
                    gain = tl.sum(2 * _ones(fresh & x) - _ones(fresh), axis=0).to(tl.int64)
                    # a gain of 0 or less: its key is below K, also where division would round towards 0
                    worst = tl.minimum(worst, gain * K + j)
            moves = worst < K
            if moves:
                dropped = ((worst % K) + K) % K
                code ^= tl.where(part == dropped // 64, tl.full((CODES,), 1, tl.int64) << (dropped % 64), 0)
                cover, _ = _covered(code, H, q, K, WORDS, CODES)
    tl.store(out + row * HELD + part, code, mask=part < HELD)


def _sizes(X: Any, W: Any, H: Any) -> dict[str, int]:
    words = max(triton.next_power_of_2(X.shape[1]), 16)
    held = W.shape[1]
    codes = triton.next_power_of_2(held)
    return {"K": len(H), "WORDS": words, "CODES": codes, "HELD": held, "num_warps": 1 if words <= 256 else 4}


def row_counts(X: Any, W: Any, H: Any) -> tuple[Any, Any]:
    """Return by row (n, int64) the ones and the zeros that its code covers, of contiguous words."""
    hits, excess = X.new_empty(len(X)), X.new_empty(len(X))
    if len(X):
        _row_counts[(len(X),)](X, W, H, hits, excess, X.shape[1], **_sizes(X, W, H))
    return hits, excess


def greedy(X: Any, W: Any, H: Any) -> Any:
    """Return the words of codes after greedy cover that begins at those of W, of contiguous words."""
    out, sizes = X.new_empty(W.shape), _sizes(X, W, H)
    if len(X):
        some = max(TILE // sizes["WORDS"], 1)
        _greedy[(len(X),)](X, W, H, out, X.shape[1], **sizes, SOME=some)
    return out
