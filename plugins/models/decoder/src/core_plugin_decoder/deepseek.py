"""Mixtures of experts that are configured and stored as those of DeepSeek-V3, as many families have them. Torch-free.

Sigmoids are the scores, biases correct the choice, and groups of experts are chosen by the sum of their two best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api import CheckpointError, Routing
from core_plugin_decoder.description import MLP, Mixture

if TYPE_CHECKING:
    from core_plugin_decoder.reading import Fields

_EPS = 1e-20


def grouped_mixture(given: Fields) -> Mixture:
    """Return the mixture that a configuration describes.

    The family gives defaults of `n_routed_experts`, `moe_intermediate_size`, `num_experts_per_tok` and
    `norm_topk_prob`, where it has some. `n_shared_experts` are one MLP of as many times the size; 0: there is none.

    Raises:
        CheckpointError: CORE-M126, the experts cannot be grouped or chosen so.
    """
    given.expect("scoring_func", "sigmoid", "noaux_tc")  # some write the name of the method
    given.expect("topk_method", "noaux_tc")
    experts, size = given.integer("n_routed_experts"), given.integer("moe_intermediate_size")
    shared = given.count("n_shared_experts", 0)
    return Mixture(
        experts=experts,
        size=size,
        routing=grouped_routing(given, experts),
        activation=given.text("hidden_act", "silu"),
        correction="gate.e_score_correction_bias",
        shared=MLP(size=shared * size, activation=given.text("hidden_act", "silu"), name="shared_experts")
        if shared
        else None,
    )


def grouped_routing(given: Fields, experts: int) -> Routing:
    """Return how the experts are chosen."""
    groups, chosen = given.integer("n_group", 1), given.integer("topk_group", 1)
    top_k = given.integer("num_experts_per_tok", most=experts)
    if experts % groups or experts < 2 * groups or chosen > groups or top_k > experts // groups * chosen:
        names = f"'{given.key('n_group')}' is {groups}, '{given.key('topk_group')}' {chosen}"
        raise CheckpointError("CORE-M126", f"{names}: {top_k} of {experts} experts cannot be chosen so.")
    return Routing(
        top_k=top_k,
        score="sigmoid",
        correction=True,
        groups=groups,
        top_groups=chosen,
        group_by="top2",
        renormalize=given.flag("norm_topk_prob"),
        eps=_EPS,
        factor=given.number("routed_scaling_factor", 1.0),
    )


def beyond(given: Fields, name: str, default: int = 0) -> tuple[str, ...]:
    """Return globs of the layers behind the last one, which only predict further tokens (`name` counts them)."""
    first = given.layers()
    return tuple(f"model.layers.{first + index}.*" for index in range(given.count(name, default)))
