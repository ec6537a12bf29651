"""The attention that models of transformers are given: they call it by its name, and it asks who is to attend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

NAME = "core_paged"

Attend = Callable[..., "Tensor"]
"""`(module, query (1, heads, tokens, size), key, value, mask, **further) -> (1, tokens, heads, size of a value)`."""

_ATTEND: ContextVar[Attend] = ContextVar("attend")


@contextmanager
def attending(attend: Attend) -> Iterator[None]:
    """Let `attend` be the attention of models of transformers for a while, in this thread."""
    token = _ATTEND.set(attend)
    try:
        yield
    finally:
        _ATTEND.reset(token)


def _core_paged(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **further: Any
) -> tuple[Tensor, None]:
    return _ATTEND.get()(module, query, key, value, attention_mask, **further), None


def register() -> None:
    """Make the attention known to transformers, which is loaded here: a plugin's import changes nothing of others."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, _core_paged)
