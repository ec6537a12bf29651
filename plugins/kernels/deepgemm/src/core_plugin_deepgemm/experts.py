"""Mixtures of experts: one product for the rows of all experts."""

from __future__ import annotations

from collections.abc import Mapping

import deep_gemm
import torch
from torch import Tensor

from core_plugin_deepgemm.grouping import Segments, segments
from core_plugin_deepgemm.rounding import CODES, round_runs
from core_plugin_deepgemm.weights import BlockProduct


class _Experts(BlockProduct):
    """Rows by expert, each times the weights of its expert."""

    def _segments(self, ids: Tensor) -> Segments:
        return segments(ids, self._experts, deep_gemm.get_mk_alignment_for_contiguous_layout())

    def _multiply(self, rows: Tensor, scales: Tensor, where: Segments, params: Mapping[str, Tensor]) -> Tensor:
        """`rows (pairs, inputs)` bytes of codes by expert, `scales (pairs, inputs / 128)` -> `(pairs, outputs)`."""
        given = (where.spread(rows, 0).view(CODES), where.spread(scales, 1.0))
        results = []
        for run, codes, own in self._weights(params):
            results.append(torch.empty(where.rows, run.rows, dtype=self.place.dtype, device=rows.device))
            # A run of some of the outputs is not dense: the library takes groups one behind the other.
            deep_gemm.m_grouped_fp8_gemm_nt_contiguous(
                given, (codes.contiguous(), own), results[-1], where.experts, disable_ue8m0_cast=not self._powers
            )
        y = results[0] if len(results) == 1 else torch.cat(results, dim=-1)
        if "bias" in params:
            y = y + params["bias"][where.experts.clamp(min=0).long()]
        return where.gathered(y)


class ExpertsIn(_Experts):
    """The product that reads hidden states: each token's row meets the weights of all of its experts."""

    def apply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:  # type: ignore[override]
        """`x (T, inputs)`, `ids (T, k)` int32 -> `(T * k, outputs of one expert)`, by expert; zeros without one."""
        if not ids.numel():
            return x.new_empty(0, self._outputs)
        where = self._segments(ids)
        tokens = where.order // ids.shape[1]
        codes, scales = round_runs(x, powers=self._powers)
        return self._multiply(codes.view(torch.uint8)[tokens], scales[tokens], where, params)


class ExpertsOut(_Experts):
    """The product whose results are weighed and summed up for each token."""

    def apply(  # type: ignore[override]
        self, x: Tensor, weights: Tensor, ids: Tensor, params: Mapping[str, Tensor]
    ) -> Tensor:
        """`x (T * k, inputs)` by expert, `weights (T, k)`, `ids (T, k)` int32 -> `(T, outputs of one expert)`."""
        if not ids.numel():
            return x.new_empty(ids.shape[0], self._outputs)
        where = self._segments(ids)
        codes, scales = round_runs(x, powers=self._powers)
        y = self._multiply(codes.view(torch.uint8), scales, where, params)
        results = torch.empty(y.shape, dtype=torch.float32, device=y.device).index_copy_(0, where.order, y.float())
        weighed = results.view(*ids.shape, self._outputs) * weights.unsqueeze(-1)
        # One after another: a sum in another order is another number.
        total = weighed[:, 0]
        for place in range(1, ids.shape[1]):
            total = total + weighed[:, place]
        return total.to(x.dtype)
