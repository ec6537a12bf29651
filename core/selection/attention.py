"""Choosing what computes attention."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest, AttentionSpec
from core.api.errors import ConfigError
from core.api.shapes import ModelShape
from core.api.verdict import ProbeResult, Verdict
from core.plugins.drivers import Candidate
from core.plugins.kinds import ATTENTION
from core.selection.foundation import Foundation, refined
from core.selection.select import Selector


def block_size_of(given: int | None, preferred: int, shape: ModelShape) -> int:
    """Return the tokens of a KV block.

    Args:
        given: What the user asked for; None: the fewest of at least `preferred` that suit the model.

    Raises:
        ConfigError: CORE-C122, `given` does not suit the model.
    """
    multiple = shape.block_multiple
    if given is None:
        return -(-preferred // multiple) * multiple
    if given % multiple:
        raise ConfigError(
            "CORE-C122",
            f"KV blocks of {given} tokens do not suit the model, which keeps entries that stand for {multiple}.",
            hint=f"Set --block-size to a multiple of {multiple}, or leave it out.",
        )
    return given


def attention_verdict(candidate: Candidate, request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Return what speaks against a backend: its data, then what its own function says of the device."""
    spec = candidate.spec(AttentionSpec)
    verdict = request.check(spec)
    return refined(candidate, spec.refine, request, probe) if verdict.ok else verdict


def choose_attention(
    selector: Selector, name: str | None, base: Foundation, *, dtype: str, kv_dtype: str, block_size: int
) -> Candidate:
    """Return the backend that computes attention for the model. Raises `CoreError` if there is none.

    Args:
        name: What the user asked for.
    """
    shape = base.shape
    request = AttentionRequest(
        device_type=base.device,
        dtype=dtype,
        kv_dtype=kv_dtype,
        head_dim=shape.head_dim,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        block_size=block_size,
        features=shape.features,
        head_dims=shape.head_dims,
        latents=shape.latents,
    )

    def check(candidate: Candidate) -> Verdict:
        return attention_verdict(candidate, request, base.probe)

    heads = " and ".join(str(size) for size in sorted(request.sizes))
    subject = f"{request.device_type}, head_dim {heads}, {dtype}, kv {kv_dtype}, block {block_size}"
    return selector.choose(
        ATTENTION,
        name,
        check=check,
        subject=subject,
        request=request.to_dict(),
    )
