"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import ModelSpec

GPT2 = ModelSpec(
    name="acme_gpt2",
    impl="acme_core_gpt2.model:GPT2",
    api=2,
    summary="GPT-2 and its distilled forms",
    priority=60,
    architectures=("GPT2LMHeadModel",),
    shape="acme_core_gpt2.config:shape",
)
