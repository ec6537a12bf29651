"""Checks that the products' data cannot express. Torch-free."""

from __future__ import annotations

from core.api import KernelRequest, ProbeResult, Verdict

ACTIVATIONS = ("as_is", "int8:token", "float8:token", "float8:tensor", "float8:128", "float8:32", "e2m1:16", "e2m1:32")
"""Activations that the kernels round."""

SCALES = ("float32", "e8m0", "e4m3")


def product(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse activations and scales that the kernels do not know, and inputs that are no whole blocks of a file."""
    codes, _, activations = request.form.partition("@")
    scale = codes.partition(":")[2].partition("+")[0]
    inputs = request.dims.get("inputs", 0)
    if codes.startswith("gguf:"):
        size = 256 if codes.endswith(("_K", "_XS")) else 32
        return Verdict.of(f"{inputs} inputs are no whole blocks of {size}" if inputs % size else None)
    known = ", ".join(ACTIVATIONS)
    return Verdict.of(
        None if activations in ACTIVATIONS else f"activations '{activations}' are none of {known}",
        None if scale in SCALES else f"scales '{scale}' are none of {', '.join(SCALES)}",
    )
