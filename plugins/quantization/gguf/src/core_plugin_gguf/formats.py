"""Which tensor types can be decoded. Torch-free."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gguf.constants import GGMLQuantizationType as Kind

from core.api import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import ProbeResult, QuantRequest

FLOATS = {Kind.F32: "float32", Kind.F16: "float16", Kind.BF16: "bfloat16"}
"""Types that are arrays of numbers, with their dtypes."""

DECODABLE = frozenset(FLOATS) | {
    Kind.Q4_0,
    Kind.Q4_1,
    Kind.Q5_0,
    Kind.Q5_1,
    Kind.Q8_0,
    Kind.Q2_K,
    Kind.Q3_K,
    Kind.Q4_K,
    Kind.Q5_K,
    Kind.Q6_K,
    Kind.IQ1_S,
    Kind.IQ1_M,
    Kind.IQ2_XXS,
    Kind.IQ2_XS,
    Kind.IQ2_S,
    Kind.IQ3_XXS,
    Kind.IQ3_S,
    Kind.IQ4_NL,
    Kind.IQ4_XS,
    Kind.TQ1_0,
    Kind.TQ2_0,
    Kind.MXFP4,
}


def stored_as(kind: Kind) -> str:
    """Return torch's name of a plain type's dtype, `gguf:TYPE` for another."""
    return FLOATS.get(kind) or f"gguf:{kind.name}"


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse files with tensors that cannot be decoded while methods are chosen."""
    found = cast("Mapping[str, str]", request.checkpoint.get("undecodable", {}))
    return Verdict.of(*(f"{tensor} has type {kind}, which is not decoded" for kind, tensor in found.items()))
