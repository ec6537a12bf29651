"""Recording: a forward pass becomes native calls, with the torch operations between them that no native call makes.

While a step is recorded nothing is computed: what a result looks like is asked for (`results`), and memory is reserved
for it that nobody writes. What is not there cannot be read: whoever looks at numbers on the host, or asks for
a result whose size depends on numbers, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves

from core_plugin_cpu.native.arena import reserve
from core_plugin_cpu.native.entry import Entry, recorder
from core_plugin_cpu.native.partial import NotReplayableError
from core_plugin_cpu.native.program import Inputs
from core_plugin_cpu.native.results import SHARED, result_of
from core_plugin_cpu.native.rewrite import rewritten
from core_plugin_cpu.native.uses import Item, TorchCall, begin, natives

_FILLS = frozenset(
    f"{before}{kind}{behind}"
    for kind in ("zeros", "ones", "full")
    for before, behind in (("", ""), ("new_", ""), ("", "_like"))
)
"""Tensors of one number, made once: how much of it a step takes does not matter."""

_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_READS = frozenset({"item", "_local_scalar_dense", "is_nonzero", "equal", "resolve_conj", "resolve_neg"})
_MARKS = frozenset({"lift_fresh", "detach_"})
"""Torch makes a tensor of numbers of the host with them."""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects what is done and the tensors made on the way.

    Args:
        running: Whether native calls are made, and memory is allocated as ever.
        step: What the step gives; None: torch operations are refused.
        plain: Whether everything but native calls is refused, before anything is made of it.
        like: A recording of the same work for another number of tokens: what was made natively there is here.

    Attributes:
        items: Native calls and torch operations, in order.
        made: Tensors with memory of their own, which lives with the program.
        fills, lifted: Tensors that are made once for all steps: of one number, and of numbers of the host.
        held: Tensors that native calls read, and nobody else may keep.
        choices: What became of each operation: native calls for all `rows` of the step or for the `whole` of what does
            not depend on it, a `torch` call.
    """

    def __init__(
        self, *, running: bool, step: Inputs | None = None, plain: bool = False, like: Recorder | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.items: list[Item] = []
        self.made: list[Tensor] = []
        self.fills: list[Tensor] = []
        self.lifted: list[Tensor] = []
        self.held: list[Tensor] = []
        self.choices: list[str] = []
        self.refusal: NotReplayableError | None = None
        self.step = step
        self._running, self._plain, self._like = running, plain, like

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing compiles here; to be skipped by the compiler, torch would import it first, which takes over a second.
        return False

    @property
    def constants(self) -> list[Tensor]:
        """Tensors that are made once for all steps."""
        return [*self.fills, *self.lifted]

    def add(self, entry: Entry, packed: bytes) -> bool:
        """Take a native call; return whether it is to be made now."""
        self.items.append((entry, packed))
        return self._running

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in _ALLOCATIONS and self._running:
            self.made.append(func(*args, **kwargs))
            return self.made[-1]
        if self._plain and (name in _FILLS or name in _MARKS):
            raise self.refuse(f"{func} is no native call")
        if name in _FILLS or name in _MARKS:
            kept = self.fills if name in _FILLS else self.lifted
            kept.append(func(*args, **kwargs))
            return kept[-1]
        if name in _READS:
            raise self.refuse(f"{func} reads numbers on the host")
        like = self._look(func, args, kwargs)
        if name in _ALLOCATIONS:
            return self._reserve(like)
        return self._do(func, args, kwargs, like)

    def refuse(self, why: str) -> NotReplayableError:
        """Return the error that ends the recording, and keep it: the work may make something else of it."""
        self.refusal = NotReplayableError(why)
        return self.refusal

    def _do(self, func: Any, args: Any, kwargs: Any, like: Any) -> Any:
        if like is SHARED:
            if func is torch.ops.aten.squeeze.default and self._of_step(args):
                raise self.refuse(f"{func} makes another shape of one token than of many")
            return func(*args, **kwargs)
        if self._plain:
            raise self.refuse(f"{func} is no native call")
        wanted = "" if self._like is None else self._followed(len(self.choices))
        if func._schema.is_mutable and self.step is not None:
            self._changed(func, args, kwargs)
        choice = wanted or self._choose(args, like)
        made = self._native(func, args, kwargs, like, choice) if choice in ("rows", "whole") else None
        if made is not None:
            self.choices.append(choice)
            return made
        if self.step is None:
            raise self.refuse(f"{func} is no native call")
        if wanted not in ("", "torch"):
            raise self.refuse(f"{func} is something else for few tokens than for many")
        self.choices.append("torch")
        return self._torch(func, args, kwargs, like)

    def _followed(self, index: int) -> str:
        choices = [] if self._like is None else self._like.choices
        if index >= len(choices):
            raise self.refuse("other operations are made for few tokens than for many")
        return choices[index]

    def _choose(self, args: Any, like: Any) -> str:
        """Return what native calls may take: all rows of the step, or the whole of what does not depend on it."""
        if not isinstance(like, Tensor) or not like.dim():
            return "torch"
        if self.step is None or like.shape[0] % self.step.size == 0:
            return "rows"
        return "torch" if self._of_step(args) else "whole"

    def _native(self, func: Any, args: Any, kwargs: Any, like: Any, choice: str) -> Tensor | None:
        """Make native calls of an operation, if there are some for it."""
        before, places = len(self.items), len(self.made)
        made = rewritten(func, args, kwargs, lambda: self._reserve(like), rows=choice == "rows")
        if made is None or (choice == "rows" and self._like is None and not self._takes_rows(before)):
            del self.items[before:], self.made[places:]
            return None
        if not func._schema.is_mutable and len(self.made) == places:
            self.made.append(made)
        self.held += [one for one in tree_leaves(args) if isinstance(one, Tensor)]
        return made

    def _takes_rows(self, before: int) -> bool:
        """Whether the calls from there on take all rows of the step, which lie the same however many there are."""
        size = 0 if self.step is None else self.step.size
        for entry, packed in natives(self.items[before:]) if size else ():
            for name, number in entry.unpack(packed).items():
                if name in entry.pointers or not isinstance(number, int):
                    continue
                follows = number % size == 0
                if not follows if entry.slots.get(name) == "tokens" else follows and number:
                    return False
        return True

    def _of_step(self, args: Any) -> bool:
        """Whether an argument is what the step gives, or was made: it may depend on the step."""
        homes = {begin(one) for one in self.made}
        tensors = [one for one in tree_leaves(args) if isinstance(one, Tensor)]
        return any(begin(one) in homes or self.given(one) is not None for one in tensors)

    def given(self, tensor: Tensor) -> tuple[str, int] | None:
        """Return which input of the step a tensor lies in, and how many bytes behind its beginning."""
        if self.step is None:
            return None
        address = tensor.data_ptr()
        for place, name in self.step.places.items():
            if place <= address < place + max(1, 8 * self.step.size * (name in ("token_ids", "positions"))):
                return name, address - place
        return None

    def _torch(self, func: Any, args: Any, kwargs: Any, like: Any) -> Any:
        leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
        if func._schema.is_mutable:
            changed = self._changed(func, args, kwargs)
            self.items.append(TorchCall(func, leaves, spec, []))
            return changed
        looks, shape = tree_flatten(like)
        if not all(isinstance(one, Tensor) for one in looks):
            raise self.refuse(f"{func} gives the host a number")
        results = [self._reserve(one) for one in looks]
        self.items.append(TorchCall(func, leaves, spec, results))
        return shape.unflatten(results)

    def _changed(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Return what an operation changes, which is what it returns."""
        names = [one.name for one in func._schema.arguments if one.alias_info is not None and one.alias_info.is_write]
        bound = {one.name: value for one, value in zip(func._schema.arguments, args)} | kwargs
        tensors = [bound[name] for name in names]
        if len(tensors) != 1 or not isinstance(tensors[0], Tensor) or len(func._schema.returns) > 1:
            raise self.refuse(f"{func} changes several tensors")
        if self.given(tensors[0]) is not None:
            raise self.refuse(f"{func} changes what the step gives")
        if begin(tensors[0]) in {begin(one) for one in self.constants}:
            raise self.refuse(f"{func} changes a tensor that is made once for all steps")
        return tensors[0]

    def _reserve(self, like: Tensor) -> Tensor:
        """Allocate memory for one result: it costs addresses only until something is written."""
        memory = reserve(like.untyped_storage().nbytes()).view(like.dtype)
        self.made.append(memory.as_strided(like.shape, like.stride()))
        return self.made[-1]

    def _look(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what `func` gives, on the meta device; `SHARED` if it lies in its arguments' memory."""
        try:
            return result_of(func, args, kwargs)
        except Exception as error:
            raise self.refuse(f"the size of what {func} gives is not known before ({error})") from error


@contextmanager
def recording(found: Recorder) -> Iterator[Recorder]:
    """Have `found` record what this thread does."""
    token = recorder.set(found)
    try:
        with torch.inference_mode(), found:
            yield found
    finally:
        recorder.reset(token)
