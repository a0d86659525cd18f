"""Pieces of memory for packed matrices: apart, aligned, and alive for as long as one is held."""

import gc
from itertools import pairwise

import numpy as np

from mashbox.engine.worker.kernels.arena import CHUNK, Arena


def test_pieces_are_apart_and_aligned() -> None:
    arena = Arena()
    pieces = [arena.take(size) for size in (1, 63, 64, 1000, CHUNK // 2, CHUNK // 2, 3, CHUNK + 5, 7)]
    for number, piece in enumerate(pieces):
        assert piece.dtype == np.uint8 and piece.ctypes.data % 64 == 0
        piece[0], piece[-1] = number, number
    assert [(int(piece[0]), int(piece[-1])) for piece in pieces] == [(n, n) for n in range(len(pieces))]
    spans = sorted((piece.ctypes.data, piece.ctypes.data + len(piece)) for piece in pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_a_piece_outlives_its_arena() -> None:
    piece = Arena().take(1000)
    piece.fill(7)
    gc.collect()
    assert int(piece.sum()) == 7000
