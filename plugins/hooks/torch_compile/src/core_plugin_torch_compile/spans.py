"""Traced models cut at their attention: each piece between two layers of it is compiled, attention runs as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.split_module import split_module

from core_plugin_torch_compile.operations import DIRECT

Make = Callable[[GraphModule, list[Any]], Callable[..., Any]]
"""Compiles a piece for inputs like those."""


class _Piece(torch.nn.Module):
    """A compiled piece in the place of a traced one.

    Args:
        single: What it gives stands alone; compiled pieces give a tuple.
    """

    def __init__(self, run: Callable[..., Any], *, single: bool) -> None:
        super().__init__()
        self._run, self._single = run, single

    def forward(self, *inputs: Any) -> Any:
        found = self._run(*inputs)
        return found[0] if self._single else found


def in_spans(module: GraphModule, make: Make) -> tuple[Callable[..., Any], int] | None:
    """Return what runs a traced graph, and how many pieces were compiled; None where it has no attention."""
    places, attention = _places(module)
    if not attention:
        return None
    whole = split_module(module, None, places.__getitem__, keep_original_order=True)
    pieces = 0
    for name, part in list(whole.named_children()):
        if int(name.removeprefix("submod_")) in attention:
            _call_directly(part)
            continue
        inputs = [node.meta["example_value"] for node in part.graph.nodes if node.op == "placeholder"]
        single = _in_a_tuple(part)
        setattr(whole, name, _Piece(make(part, inputs), single=single))
        pieces += 1
    return whole.forward, pieces


def _places(module: GraphModule) -> tuple[dict[Node, int], set[int]]:
    """Return the number of the part that each node belongs to, and the numbers of those that are attention."""
    places: dict[Node, int] = {}
    attention: set[int] = set()
    number, before = 0, False
    for node in module.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        attends = node.target in DIRECT
        number += attends is not before
        before = attends
        places[node] = number
        if attends:
            attention.add(number)
    return places, attention


def _in_a_tuple(part: Any) -> bool:
    """Have a part give a tuple; return whether it gave something alone."""
    (last,) = (node for node in part.graph.nodes if node.op == "output")
    single = not isinstance(last.args[0], (tuple, list))
    if single:
        last.args = ((last.args[0],),)
        part.recompile()
    return single


def _call_directly(part: Any) -> None:
    for node in part.graph.nodes:
        if node.target in DIRECT:
            node.target = DIRECT[node.target]
    part.recompile()
