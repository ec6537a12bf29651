"""What this distribution offers, as data."""

from __future__ import annotations

from core.api import FlagDialectSpec

VLLM = FlagDialectSpec(
    name="vllm",
    impl="core_plugin_vllm_flags.dialect:VllmFlags",
    api=1,
    summary="Command lines and configuration files written for vLLM",
)
