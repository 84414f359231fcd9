"""`RowCache`: keys and values of many sequences, a row each, every row as long as it is.

transformers' own caches know one length for all rows. Here each row has its own: new keys are
written where the row ends, and the mask hides what lies beyond. So sequences come and go without
their neighbours being padded anew.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache

# Lengths grow in steps of this.
_ALIGNMENT = 64


class RowCache(Cache):
    """Rows of keys and values, `[row, position, head, dimension]` for each layer.

    `aim` tells where the next forward pass writes and reads; the model then calls `update` once
    for each of its layers.
    """

    def __init__(self, most_tokens: int) -> None:
        """Hold at most `most_tokens` positions, over all rows."""
        self._most_tokens = most_tokens
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._capacity = (0, 0)
        self._rows = slice(0, 0)
        self._row_index: torch.Tensor = torch.empty(0)
        self._positions: torch.Tensor = torch.empty(0)
        self._length = 0

    @property
    def capacity(self) -> tuple[int, int]:
        """Rows and positions that there is room for without growing."""
        return self._capacity

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return sum(tensor.nbytes for tensor in (*self._keys, *self._values))

    def reserve(self, rows: int, length: int) -> bool:
        """Make room for `rows` rows of `length` positions; False if there can be none."""
        have_rows, have_length = self._capacity
        if rows <= have_rows and length <= have_length:
            return True
        aligned = -(-length // _ALIGNMENT) * _ALIGNMENT
        wishes = [
            (
                have_rows if rows <= have_rows else _power_of_two(rows),
                have_length if length <= have_length else max(aligned, 2 * have_length),
            ),
            (max(rows, have_rows), max(aligned, have_length)),
            (rows, aligned),
        ]
        for wish in wishes:
            if wish[0] * wish[1] <= self._most_tokens:
                self._resize(*wish)
                return True
        return False

    def aim(self, first_row: int, positions: torch.Tensor, length: int) -> None:
        """Write the next keys of rows from `first_row` on at `positions`, `[row, token]`.

        Attention sees `length` positions of these rows.
        """
        count = positions.shape[0]
        self._rows = slice(first_row, first_row + count)
        self._row_index = torch.arange(first_row, first_row + count, device=positions.device)
        self._row_index = self._row_index[:, None]
        self._positions = positions
        self._length = length

    def copy(self, source: int, target: int, length: int) -> None:
        """Make row `target` begin as row `source` does."""
        for tensor in (*self._keys, *self._values):
            tensor[target, :length] = tensor[source, :length]

    def swap(self, one: int, other: int, length: int) -> None:
        """Exchange the first `length` positions of two rows."""
        if one == other:
            return
        for tensor in (*self._keys, *self._values):
            kept = tensor[one, :length].clone()
            tensor[one, :length] = tensor[other, :length]
            tensor[other, :length] = kept

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a layer's new keys and values, `[row, head, token, dimension]`; give all."""
        while len(self._keys) <= layer_idx:
            self._keys.append(self._new(key_states))
            self._values.append(self._new(value_states))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        place = (self._row_index, self._positions)
        keys[place] = key_states.transpose(1, 2)
        values[place] = value_states.transpose(1, 2)
        seen = keys[self._rows, : self._length], values[self._rows, : self._length]
        return seen[0].transpose(1, 2), seen[1].transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions seen; of no use where every row has its own, but asked for."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Length and offset of what attention sees."""
        return self._length, 0

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """No bound that a model needs to know."""
        return -1

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Of no use here, but asked for."""
        return 0

    @property
    def is_compileable(self) -> bool:
        """Whether `generate` may compile with it; it is not for `generate`."""
        return False

    @property
    def is_initialized(self) -> bool:
        """Whether any layer has written."""
        return bool(self._keys)

    @property
    def is_sliding(self) -> list[bool]:
        """No layer forgets; the masks of sliding layers hide what they must not see."""
        return [False] * len(self._keys)

    def __len__(self) -> int:
        """Layers that have written."""
        return len(self._keys)

    def __repr__(self) -> str:
        """The size."""
        return f"RowCache(rows={self._capacity[0]}, positions={self._capacity[1]})"

    def _new(self, like: torch.Tensor) -> torch.Tensor:
        rows, length = self._capacity
        # Zeros: what is hidden still takes part in products, and must be finite.
        return like.new_zeros(rows, length, like.shape[1], like.shape[3])

    def _resize(self, rows: int, length: int) -> None:
        kept_rows, kept_length = min(rows, self._capacity[0]), min(length, self._capacity[1])
        self._capacity = (rows, length)
        for tensors in (self._keys, self._values):
            # One after the other, so that never more than one tensor is there twice.
            for i, old in enumerate(tensors):
                new = old.new_zeros(rows, length, *old.shape[2:])
                new[:kept_rows, :kept_length] = old[:kept_rows, :kept_length]
                tensors[i] = new


def visible(positions: torch.Tensor, length: int, *, window: int | None = None) -> torch.Tensor:
    """The mask of tokens at `positions`, `[row, token]`: True for what each may attend to."""
    keys = torch.arange(length, device=positions.device)
    behind = positions[:, None, :, None] - keys
    mask = behind >= 0
    return mask if window is None else mask & (behind < window)


def layer_kinds(config: Any) -> Sequence[str]:
    """The kinds of attention that a model's layers have, as transformers names them."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return sorted(set(kinds))
    window = getattr(config, "sliding_window", None)
    uses = getattr(config, "use_sliding_window", True)
    return ["sliding_attention"] if window and uses else ["full_attention"]


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
