"""What this distribution offers, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSpec

GEMMA = ModelSpec(
    name="gemma",
    impl="core_plugin_gemma.model:CausalLM",
    api=2,
    summary="Gemma 2 and Gemma 3 text decoders",
    architectures=("Gemma2ForCausalLM", "Gemma3ForCausalLM"),
    shape="core_plugin_gemma.config:shape",
    chat_templates="core_plugin_gemma.chat:Templates",
)
