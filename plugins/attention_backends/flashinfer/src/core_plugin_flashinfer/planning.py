"""How layers of one kind are planned: their wrappers, and what `plan` is told of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from flashinfer import (
    BatchAttentionWithAttentionSinkWrapper,
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
)
from torch import Tensor

from core.api.attention import AttentionContext
from core_plugin_flashinfer.kind import Kind
from core_plugin_flashinfer.options import FlashInferOptions
from core_plugin_flashinfer.step import StepPages, index_memory
from core_plugin_flashinfer.wrappers import Fenced, Turns

LAYOUT = "NHD"
"""Tokens of a page before heads, in FlashInfer's words."""


class Planning(ABC):
    """Plans of layers of one kind.

    Args:
        workspace: Returns the workspace of all wrappers.
    """

    def __init__(self, ctx: AttentionContext, options: FlashInferOptions, workspace: Callable[[], Tensor]) -> None:
        self._ctx, self._options, self._workspace = ctx, options, workspace
        self._prompts = Turns(partial(self._made, single=False), ctx.device)
        self._tokens = Turns(partial(self._made, single=True), ctx.device)

    def plan(self, step: StepPages) -> Any:
        """Plan a step; return the wrapper that computes it."""
        turns = self._tokens if step.single else self._prompts
        arguments, named = self._told(step)
        return turns.plan(arguments, named)

    def fixed(self, rows: int, pages: int) -> Fenced:
        """Return a wrapper for steps of so many rows of one token and at most so many pages, in memory that stays."""
        return Fenced(self._made_fixed(rows, pages), self._ctx.device)

    def replan(self, fixed: Fenced, step: StepPages) -> None:
        """Plan a step anew with a wrapper of `fixed`."""
        arguments, named = self._told(step)
        fixed.plan(*arguments, **named)

    @abstractmethod
    def _made(self, *, single: bool) -> Any:
        """Return a new wrapper; `single`: for steps of one token a row."""

    @abstractmethod
    def _made_fixed(self, rows: int, pages: int) -> Any:
        """Return a new wrapper for `fixed`."""

    @abstractmethod
    def _told(self, step: StepPages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return what its `plan` takes."""


class HeadPlanning(Planning):
    """Plans of layers that keep keys and values."""

    def __init__(
        self, kind: Kind, ctx: AttentionContext, options: FlashInferOptions, workspace: Callable[[], Tensor]
    ) -> None:
        super().__init__(ctx, options, workspace)
        self._kind = kind

    def _made(self, *, single: bool) -> Any:
        if single:
            cores = self._kind.tensor_cores
            return BatchDecodeWithPagedKVCacheWrapper(self._workspace(), LAYOUT, use_tensor_cores=cores)
        return BatchPrefillWithPagedKVCacheWrapper(self._workspace(), LAYOUT)

    def _made_fixed(self, rows: int, pages: int) -> Any:
        names = ("paged_kv_indptr_buffer", "paged_kv_indices_buffer", "paged_kv_last_page_len_buffer")
        return BatchDecodeWithPagedKVCacheWrapper(
            self._workspace(),
            LAYOUT,
            use_cuda_graph=True,
            use_tensor_cores=self._kind.tensor_cores,
            **dict(zip(names, index_memory((rows + 1, pages, rows), self._ctx.device), strict=True)),
        )

    def _told(self, step: StepPages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found, kind = step.pages, self._kind
        pages = (found.starts, found.places, found.last)
        sizes = (kind.heads, kind.kv_heads, kind.dim, self._ctx.block_size)
        if step.single:
            return (*pages, *sizes), self._terms()
        return (step.starts, *pages, *sizes), {**self._terms(), "causal": True}

    def _terms(self) -> dict[str, Any]:
        """Return what all wrappers' `plan` take by name."""
        kind, ctx = self._kind, self._ctx
        named: dict[str, Any] = {
            "window_left": kind.window,
            "logits_soft_cap": kind.cap,
            "sm_scale": kind.scale,
            "q_data_type": ctx.dtype,
            "kv_data_type": ctx.kv_dtype,
        }
        return named if self._options.splits else {**named, "disable_split_kv": True}


class SinkPlanning(HeadPlanning):
    """Plans of layers whose heads have sinks: one wrapper computes steps of all kinds, as prompts.

    The library's kernels for Hopper do not split contexts, so steps of one token a row go to those for all cards.
    """

    def _made(self, *, single: bool) -> Any:
        return self._wrapper("fa2" if single else "auto")

    def _made_fixed(self, rows: int, pages: int) -> Any:
        names = ("qo_indptr_buf", "paged_kv_indptr_buf", "paged_kv_indices_buf", "paged_kv_last_page_len_buf")
        memory = index_memory((rows + 1, rows + 1, pages, rows), self._ctx.device)
        return self._wrapper("fa2", use_cuda_graph=True, **dict(zip(names, memory, strict=True)))

    def _wrapper(self, backend: str, **named: Any) -> Any:
        kind, ctx = self._kind, self._ctx
        return BatchAttentionWithAttentionSinkWrapper(
            self._workspace(),
            LAYOUT,
            backend=backend,
            q_data_type=ctx.dtype,
            kv_data_type=ctx.kv_dtype,
            head_dim_qk=kind.dim,
            head_dim_vo=kind.dim,
            window_left=kind.window,
            **named,
        )

    def _told(self, step: StepPages) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found, kind = step.pages, self._kind
        pages = (step.starts, found.starts, found.places, found.last)
        sizes = (kind.heads, kind.kv_heads, kind.dim, self._ctx.block_size)
        return (*pages, *sizes), {**self._terms(), "causal": True}


def planning_of(
    kind: Kind, ctx: AttentionContext, options: FlashInferOptions, workspace: Callable[[], Tensor]
) -> HeadPlanning:
    """Return the plans of layers of a kind."""
    return (SinkPlanning if kind.sinks else HeadPlanning)(kind, ctx, options, workspace)
