"""How long a context may be: what the model's rotary scaling makes of it, and what the user asks for. Torch-free."""

from __future__ import annotations

from core.api.patches import Problem
from core.api.shapes import ModelShape
from core.options.model import FITTING


def context_of(wanted: int | None, default: int, shape: ModelShape) -> tuple[int, list[Problem]]:
    """Return the context to start with, in tokens, and what is wrong with the one that is `wanted`."""
    if wanted in (None, FITTING):
        return default, []
    if wanted <= shape.max_positions:
        return wanted, []
    text = f"max_model_len {wanted} is greater than the {shape.max_positions} positions the model was made for."
    hint = f"Use --max-model-len {shape.max_positions} or less"
    hint += ", or stretch the context with --rope-scaling (docs/context-length.md)." if shape.ropes else "."
    return wanted, [Problem(level="error", code="CORE-C110", message=text, hint=hint)]


def short_by_default(wanted: int | None, context: int, shape: ModelShape) -> list[str]:
    """Return what the user should know whose `context` is the model's default one, less than its longest."""
    if wanted not in (None, FITTING) or not context == shape.default_positions < shape.max_positions:
        return []
    return [
        f"the context is {context} tokens, computed with the model's factors for short contexts; "
        f"--max-model-len takes up to {shape.max_positions}, and then every prompt is computed with those for long ones"
    ]
