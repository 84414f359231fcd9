"""Positions of M-RoPE: three axes, on which the patches of an image stand as they stand in it.

Source: Qwen2-VL's paper and transformers' `get_rope_index`. Text goes on on all axes at once; an
image takes as many positions as its longer side has merged patches.
"""

from collections.abc import Sequence

import torch

from fastrender.engine.local.sequence import Span


def axes_of(length: int, spans: Sequence[Span]) -> tuple[torch.Tensor, int]:
    """Positions of a prompt of `length` tokens, `[3, token]`, and the shift of what follows it.

    A later token at place `p` has `p + shift` on all axes.
    """
    pieces: list[torch.Tensor] = []
    place = next_position = 0
    for span in sorted(spans, key=lambda span: span.offset):
        text = span.offset - place
        pieces.append(_line(next_position, text))
        next_position += text
        rows, columns = span.grid
        row = torch.arange(rows).repeat_interleave(columns)
        column = torch.arange(columns).repeat(rows)
        pieces.append(torch.stack([torch.zeros_like(row), row, column]) + next_position)
        next_position += max(rows, columns)
        place = span.offset + span.length
    pieces.append(_line(next_position, length - place))
    next_position += length - place
    return torch.cat(pieces, dim=1), next_position - length


def _line(start: int, length: int) -> torch.Tensor:
    return torch.arange(start, start + length).expand(3, length)
