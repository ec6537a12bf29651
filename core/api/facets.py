"""Optional facets of a platform: captured graphs, and collectives between devices. Provisional.

A platform that has one offers it as its attribute `graphs` or `collectives`; with None, which is the default, the facet
is absent and nothing asks for it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs
    from core.api.steps import StepShape

Forward = Callable[["StepInputs"], "Tensor"]
"""A model's `forward`."""


class Graph(Protocol):
    """A captured forward pass."""

    def replay(self, step: StepInputs) -> Tensor:
        """Run the captured work on the inputs of `step`; return the final hidden states, `(tokens, hidden)`."""
        ...


class GraphFacet(ABC):
    """Base of what captures forward passes and replays them.

    Attributes:
        fixed: A graph reads the memory that it was captured with: every `replay` is given the step of its `capture`,
            which core has filled with the inputs, padded where they are fewer. Padding is rows of one token at block 0,
            slot 0, with recurrent states in one slot that is nobody's. All rows are padding while `capture` runs, which
            may call the forward pass any number of times. Steps of one token a row run so, if the attention backend is
            `Replayable`, and those that one of `mixed_sizes` holds, if it has the feature `replayable_prompts`; others
            run without a graph. False: a graph takes the inputs of any step that its key serves, wherever they are.
        widest: Most tokens that `capture` calls a forward pass with, where those may be more than a step's; else 0.
    """

    fixed: bool = False
    widest: int = 0

    @abstractmethod
    def key(self, shape: StepShape) -> Hashable | None:
        """Return what identifies the graph for a step of this shape; None runs the step without a graph.

        Of a `fixed` facet with `sizes` it is not asked.
        """

    def sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return the steps that a `fixed` facet captures while the engine starts; core captures the largest first.

        A step runs with the smallest that holds it. Empty: a step is captured when it is first met, at its own size.

        Args:
            limits: The largest step of one token a row.
        """
        return ()

    def mixed_sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return the steps of any number of tokens a row, prompts among them, that a `fixed` facet captures as well.

        Every token of such a step is a row's: the last row has the padding. A step of fewer rows leaves those before
        the last without tokens.

        Args:
            limits: The largest such step, the row of padding counted.
        """
        return ()

    @abstractmethod
    def capture(self, forward: Forward, step: StepInputs) -> Graph:
        """Capture `forward` on inputs like those of `step`. The step itself is run by the `replay` that follows.

        Graphs are dropped when weights are replaced, and captured anew.
        """


class CollectiveFacet(Protocol):
    """Exchange between the ranks of a group.

    Attributes:
        rank, world_size: This process, and how many there are.
        alignment: Sizes along the exchanged dimension must be a multiple of this many elements.
    """

    rank: int
    world_size: int
    alignment: int

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        ...

    def all_gather(self, tensor: Tensor, dim: int) -> Tensor:
        """Return every rank's tensor, concatenated along `dim` in the order of ranks."""
        ...

    def all_to_all(self, tensor: Tensor, splits: Sequence[int]) -> Tensor:
        """Send `splits[r]` leading rows to rank r, in order; return what arrived, in the order of ranks."""
        ...

    def broadcast(self, tensor: Tensor, source: int) -> Tensor:
        """Return rank `source`'s tensor."""
        ...

    def barrier(self) -> None:
        """Wait for every rank."""
        ...
