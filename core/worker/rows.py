"""State that lives as long as a request: its row in the token pool and in the block tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.steps import BlockUpdate, NewRow
from core.engine.blocks import NULL_BLOCK
from core.worker.allocate import zeros
from core.worker.transfers import Transfers

if TYPE_CHECKING:
    from core.layers.states import StateMemory


class RowTable:
    """Fixed tables with one row per request that may run at once. A request keeps its row for life.

    What the host knows lives on the host (block tables, lengths); tokens live on the device, because the next step
    reads there what the last one sampled. On a host platform they are the same memory, and nothing is ever copied.

    Attributes:
        tokens: `(max_rows, max_model_len + 1)` int32 on the device: prompt and sampled tokens. The next step reads its
            inputs here, so that the host never needs to know a token to run it.
        block_tables: `(groups, max_rows, blocks per request)` int32 on the host: a table of each cache group.
        layers: The KV layers of each cache group; None: all of the model's.
        prompt_lens: `(max_rows,)` int32 on the host.
        known: `(max_rows,)` int64 on the host: tokens of each row. Kept up to date where steps may run drafts.
        width: Columns of `tokens`: token `p` of row `r` is number `r * width + p` of the pool.
        transfers: How the host reaches the device.
        states: Memory of the model's recurrent states: a row's slot has its number.
    """

    def __init__(
        self,
        max_rows: int,
        max_model_len: int,
        block_size: int,
        transfers: Transfers,
        layers: Sequence[frozenset[int] | None] = (None,),
        *,
        states: Sequence[StateMemory] = (),
    ) -> None:
        self.states = states
        columns = -(-max_model_len // block_size)
        self.transfers = transfers
        self.device = transfers.device
        self.width = max_model_len + 1
        self.tokens = zeros((max_rows, self.width), torch.int32, self.device, apart=transfers.apart)
        self.block_tables = np.zeros((len(layers), max_rows, columns), dtype=np.int32)
        self.layers = layers
        self.prompt_lens = np.zeros(max_rows, dtype=np.int32)
        self.known = np.zeros(max_rows, dtype=np.int64)
        self.block_size = block_size
        self._flat = self.tokens.view(-1)
        self._host: np.ndarray | None = None if transfers.apart else self._flat.numpy()

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Give each new request its row.

        What the row's previous owner left past the prompt stays, unread: every reader stops at the known tokens.
        """
        for new in new_rows:
            given = np.concatenate([new.prompt, new.generated]).astype(np.int32, copy=False)
            self.tokens[new.row, : len(given)] = self.transfers.upload(given)
            self.block_tables[:, new.row] = 0
            self.prompt_lens[new.row] = len(new.prompt)
            self.known[new.row] = len(given)

    def update_blocks(self, updates: Sequence[BlockUpdate]) -> None:
        """Apply a ragged diff of each group's block table, with one scatter."""
        for table, update in zip(self.block_tables, updates, strict=True):
            if len(update.blocks):
                table[scattered(update)] = update.blocks

    def read_tokens(self, places: np.ndarray, staged: Tensor, host: np.ndarray, out: Tensor) -> None:
        """Write tokens into `out (n,)` int64 on the device; `host` is the same memory where there is only one.

        Args:
            places: `(n,)` int64, numbers in the pool; `staged` are the same on the device.
        """
        if self._host is not None:
            host[:] = self._host[places]
        else:
            out.copy_(self._flat[staged])

    def write_tokens(
        self, rows: np.ndarray, positions: np.ndarray, tokens: Tensor, staged: Tensor | None = None
    ) -> None:
        """Store one token per entry: `tokens (n,)` at `positions (n,)` of `rows (n,)`, both int64.

        Args:
            staged: `(n,)` int64, their numbers in the pool on a device with memory of its own; None: not there yet.
        """
        if self._host is not None:
            self._host[rows * self.width + positions] = tokens.numpy()
        else:
            places = self.to_device(rows * self.width + positions) if staged is None else staged
            self._flat.scatter_(0, places, tokens.to(torch.int32))

    def tables_of(self, rows: np.ndarray, longest: int) -> np.ndarray:
        """Return the tables of `rows (n,)` as they are now, whatever later steps change: `(groups, n, columns)`.

        Args:
            longest: Tokens whose blocks are asked for.
        """
        copied: np.ndarray = self.block_tables[:, rows, : -(-longest // self.block_size)]
        return copied

    def blocks_of(self, row: int, num_tokens: int) -> np.ndarray:
        """Return the blocks of all groups that hold a row's first `num_tokens` tokens, or the last of them."""
        blocks = self.block_tables[:, row, : -(-num_tokens // self.block_size)]
        held: np.ndarray = blocks[blocks != NULL_BLOCK]
        return held

    def to_device(self, array: np.ndarray) -> Tensor:
        """Return index data as an int64 tensor on the device; the array is not to be written again."""
        return self.transfers.upload(array.astype(np.int64, copy=False))


def scattered(update: BlockUpdate) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and the column of every block of a ragged update, each `(blocks,)` int64."""
    counts = np.diff(update.offsets)
    if len(update.rows) == len(update.blocks) and (counts == 1).all():  # rows that grow while they decode
        return update.rows.astype(np.int64), update.starts.astype(np.int64)
    within = np.arange(len(update.blocks)) - np.repeat(update.offsets[:-1], counts)
    rows = np.repeat(update.rows, counts).astype(np.int64)
    return rows, np.repeat(update.starts, counts).astype(np.int64) + within
