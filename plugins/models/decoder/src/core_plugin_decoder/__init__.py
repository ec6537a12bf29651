"""Decoders as data: descriptions of architectures, and the model that they describe. Torch-free to import."""

from core_plugin_decoder.alibi import alibi_slopes
from core_plugin_decoder.deepseek import beyond, grouped_mixture, grouped_routing
from core_plugin_decoder.description import (
    MLP,
    Attention,
    Decoder,
    HeadNorm,
    Index,
    LatentAttention,
    Layer,
    Learned,
    Linear,
    Mix,
    Mixture,
    Norm,
    Recurrence,
    Score,
)
from core_plugin_decoder.model import CausalLM
from core_plugin_decoder.reading import FULL, SLIDING, Fields
from core_plugin_decoder.shapes import shape_of
from core_plugin_decoder.statespace import UNLIMITED, Mamba, Mamba2, step_limits

__all__ = [
    "FULL",
    "MLP",
    "SLIDING",
    "UNLIMITED",
    "Attention",
    "CausalLM",
    "Decoder",
    "Fields",
    "HeadNorm",
    "Index",
    "LatentAttention",
    "Layer",
    "Learned",
    "Linear",
    "Mamba",
    "Mamba2",
    "Mix",
    "Mixture",
    "Norm",
    "Recurrence",
    "Score",
    "alibi_slopes",
    "beyond",
    "grouped_mixture",
    "grouped_routing",
    "shape_of",
    "step_limits",
]
