"""A step as FlashInfer describes it: pages of all rows one behind the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from core_plugin_accelerator.paged import PagedPlan, pages
from torch import Tensor

from core_plugin_flashinfer.kind import Kind


@dataclass(frozen=True, slots=True)
class InferPlan:
    """One step.

    Attributes:
        paged: Slots, and what is on the device.
        wrappers: The planned wrapper of each kind of layers.
    """

    paged: PagedPlan
    wrappers: dict[Kind, Any] = field(default_factory=dict)

    @property
    def key_slots(self) -> Tensor:
        """Where keys go."""
        return self.paged.key_slots

    @property
    def value_slots(self) -> Tensor:
        """Where values go."""
        return self.paged.value_slots


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages of a step's rows.

    What `plan` reads is on the host: it would copy it there, and wait.

    Attributes:
        starts: `(rows + 1,)` int32 on the host, where each row's pages begin.
        places: `(pages,)` int32 on the device.
        last: `(rows,)` int32 on the host, tokens in each row's last page.
    """

    starts: Tensor
    places: Tensor
    last: Tensor


def pages_of(tables: Tensor, lengths: Tensor, seq_lens: np.ndarray, size: int) -> Pages:
    """Return the pages of rows of these lengths."""
    lens = seq_lens.astype(np.int64)
    counts = -(-lens // size)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    last = np.where(lens > 0, (lens - 1) % size + 1, 0).astype(np.int32)
    return Pages(torch.from_numpy(starts), pages(tables, lengths, lens, size), torch.from_numpy(last))
