"""Multi-head latent attention as a description says. Shapes: T tokens of a step; D hidden size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core_plugin_decoder.index import Indexer

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder, StepInputs
    from core_plugin_decoder.description import Decoder, LatentAttention
    from core_plugin_decoder.index import Picked


class LatentSelfAttention:
    """Latents of queries, and of keys and values; the latter are kept, and opened by the attention backend.

    Args:
        index: Of its layer.
        kv: Of its KV layer.
    """

    def __init__(
        self, decoder: Decoder, given: LatentAttention, build: LayerBuilder, index: int, kv: int, picked: Picked
    ) -> None:
        path, hidden = f"{decoder.layer_path(index)}.{given.name}", decoder.hidden_size
        share = build.heads(given.heads, given.heads)
        self.view, self.split = (-1, share.heads, given.head_dim), (given.key_dim, given.rope_dim)
        # Latents are not divided among ranks: every head reads all of them.
        self.kept = [given.latent_dim, given.rope_dim]
        self.query_norm = None
        if given.query_dim is None:
            self.down = build.linear(hidden, given.kept, f"{path}.kv_a_proj_with_mqa", bias=given.bias)
        else:
            parts = {"q_a_proj": given.query_dim, "kv_a_proj_with_mqa": given.kept}
            self.down = build.merged_linear(hidden, parts, path, bias=given.bias)
            self.query_norm = build.rms_norm(given.query_dim, given.eps, f"{path}.q_a_layernorm")
            self.kept = [given.query_dim, *self.kept]
        module = "q_proj" if given.query_dim is None else "q_b_proj"
        self.query = build.linear(
            given.query_dim or hidden, given.heads * given.head_dim, f"{path}.{module}", shard="out"
        )
        self.norm = build.rms_norm(given.latent_dim, given.eps, f"{path}.kv_a_layernorm")
        self.rope = None if given.rope is None else build.rope(given.rope)
        self.scale = given.latent_scale
        self.attend = build.latent_attention(
            kv,
            num_heads=share.heads,
            latent_dim=given.latent_dim,
            rope_dim=given.rope_dim,
            key_dim=given.key_dim,
            value_dim=given.value_dim,
            scale=given.scale,
            up=f"{path}.kv_b_proj",
            picks=given.picks,
            prefix=path,
        )
        self.picked = None if given.picks is None else picked
        self.indexer = None if given.index is None else Indexer(given, build, hidden, path, picked)
        width = given.heads * given.value_dim
        self.output = build.linear(width, hidden, f"{path}.{given.output}", bias=given.output_bias, shard="in")

    def __call__(self, hidden: Tensor, step: StepInputs) -> Tensor:
        """`(T, D) -> (T, D)`."""
        *queries, latent, rope_key = self.down(hidden).split_with_sizes(self.kept, dim=1)
        query = hidden if self.query_norm is None else self.query_norm(queries[0].contiguous())
        if self.indexer is not None:
            self.indexer(hidden, query, step)
        # (T, heads, key_dim), (T, heads, rope_dim)
        q, q_rope = self.query(query).view(self.view).split_with_sizes(self.split, dim=2)
        if self.rope is not None:
            q_rope, rotated = self.rope(step.positions, q_rope, rope_key.unsqueeze(1))
            rope_key = rotated.squeeze(1)
        latent = self.norm(latent.contiguous())
        if self.scale != 1.0:
            latent = latent * self.scale
        picked = None if self.picked is None else self.picked.positions
        return self.output(self.attend(q, q_rope, latent, rope_key, step, picked))
