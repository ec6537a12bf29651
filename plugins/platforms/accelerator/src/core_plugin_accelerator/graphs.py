"""Captured steps: one pool of memory for all of them, the largest captured first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch

from core.api.facets import Forward, GraphFacet
from core.api.steps import StepShape
from core_plugin_accelerator.options import SIZES, TOKENS

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs

_CLASSES = ("CUDAGraph", "XPUGraph")


def graph_class(module: Any) -> Any:
    """Return a device module's class of graphs; None if this torch has none for the device."""
    return next((getattr(module, name) for name in _CLASSES if hasattr(module, name)), None)


class CapturedGraphs(GraphFacet):
    """Steps that are captured while the engine starts: of some numbers of rows, and of tokens with prompts among them.

    Args:
        rows: Numbers of rows of one token.
        tokens: Numbers of tokens of rows that may have several.
    """

    fixed = True

    def __init__(
        self, module: Any, device: torch.device, rows: Sequence[int] = SIZES, tokens: Sequence[int] = TOKENS
    ) -> None:
        self._module, self._device = module, device
        self._rows, self._tokens = sorted(set(rows)), sorted(set(tokens))
        self._pool: Any = None

    def key(self, shape: StepShape) -> Hashable | None:
        """Return nothing: what is captured is captured at the start."""
        return None

    def sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return the numbers of rows up to that of the largest step, and the largest if it is not far above."""
        fitting = [rows for rows in self._rows if rows < limits.num_rows]
        if limits.num_rows <= self._rows[-1]:
            fitting.append(limits.num_rows)
        return [StepShape(rows, rows, 1, limits.max_seq_len) for rows in fitting]

    def mixed_sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return the numbers of tokens up to those of the largest step, with as many rows as could share them."""
        return [
            StepShape(tokens, min(tokens, limits.num_rows), tokens, limits.max_seq_len)
            for tokens in self._tokens
            if tokens <= limits.num_tokens
        ]

    def capture(self, forward: Forward, step: StepInputs) -> CapturedGraph:
        """Run the forward pass once as it is, so that kernels are compiled and libraries have their workspaces; then
        capture it.
        """
        module, device = self._module, self._device
        side, current = module.Stream(device), module.current_stream(device)
        side.wait_stream(current)
        with module.stream(side):
            forward(step)
        current.wait_stream(side)
        if self._pool is None:
            self._pool = module.graph_pool_handle()
        graph = graph_class(module)()
        with module.graph(graph, pool=self._pool, stream=side, **self._mode()):
            out = forward(step)
        return CapturedGraph(graph, out)

    def _mode(self) -> dict[str, str]:
        # Other threads of the process may wait for events, or ask for memory, while this one captures.
        names = signature(self._module.graph).parameters
        return {"capture_error_mode": "thread_local"} if "capture_error_mode" in names else {}


class CapturedGraph:
    """A captured forward pass, with the memory of its result."""

    __slots__ = ("_graph", "_out")

    def __init__(self, graph: Any, out: Tensor) -> None:
        self._graph, self._out = graph, out

    def replay(self, step: StepInputs) -> Tensor:
        """Run it on what the memory of its step holds now; the result is overwritten by the next replay."""
        self._graph.replay()
        return self._out
