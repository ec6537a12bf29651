"""Ranks: the workers among which one model is divided. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranks:
    """One rank of a group that divides every layer of a model (tensor parallelism).

    Attributes:
        rank: Number of this rank, from 0.
        size: Ranks of the group; 1: the model is whole.
    """

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ValueError(f"rank {self.rank} is not one of {self.size}")
