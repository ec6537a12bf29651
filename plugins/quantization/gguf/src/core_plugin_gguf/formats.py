"""Which tensor types can be decoded. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gguf.constants import GGMLQuantizationType as Known

from core.api import Verdict
from core_plugin_gguf.kinds import NewerKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import ProbeResult, QuantRequest
    from core_plugin_gguf.kinds import Kind

FLOATS: Mapping[Kind, str] = {Known.F32: "float32", Known.F16: "float16", Known.BF16: "bfloat16"}
"""Types that are arrays of numbers, with their dtypes."""

DECODABLE: frozenset[Kind] = (
    frozenset(FLOATS)
    | {
        Known.Q4_0,
        Known.Q4_1,
        Known.Q5_0,
        Known.Q5_1,
        Known.Q8_0,
        Known.Q2_K,
        Known.Q3_K,
        Known.Q4_K,
        Known.Q5_K,
        Known.Q6_K,
        Known.IQ1_S,
        Known.IQ1_M,
        Known.IQ2_XXS,
        Known.IQ2_XS,
        Known.IQ2_S,
        Known.IQ3_XXS,
        Known.IQ3_S,
        Known.IQ4_NL,
        Known.IQ4_XS,
        Known.TQ1_0,
        Known.TQ2_0,
        Known.MXFP4,
    }
    | set(NewerKind)
)


def stored_as(kind: Kind) -> str:
    """Return torch's name of a plain type's dtype, `gguf:TYPE` for another."""
    return FLOATS.get(kind) or f"gguf:{kind.name}"


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse files with tensors that cannot be decoded while methods are chosen."""
    found = cast("Mapping[str, str]", request.checkpoint.get("undecodable", {}))
    return Verdict.of(*(f"{tensor} has type {kind}, which is not decoded" for kind, tensor in found.items()))
