"""Linear layers."""

from __future__ import annotations

from collections.abc import Mapping

import deep_gemm
import torch
from torch import Tensor

from core_plugin_deepgemm.rounding import round_runs
from core_plugin_deepgemm.weights import BlockProduct


class Linear(BlockProduct):
    """The product of one layer."""

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens, inputs) -> (tokens, outputs)`, bias included."""
        if not x.shape[0]:
            return x.new_empty(0, self._outputs)
        rounded, results = round_runs(x, powers=self._powers), []
        for run, codes, scales in self._weights(params):
            results.append(torch.empty(x.shape[0], run.rows, dtype=x.dtype, device=x.device))
            # Codes of a run are rows one behind the other: a layer without experts is the one of its group.
            deep_gemm.fp8_gemm_nt(rounded, (codes[0], scales[0]), results[-1], disable_ue8m0_cast=not self._powers)
        y = results[0] if len(results) == 1 else torch.cat(results, dim=-1)
        return y + params["bias"][0] if "bias" in params else y
