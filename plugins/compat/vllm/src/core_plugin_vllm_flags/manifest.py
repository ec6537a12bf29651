"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import FlagDialectSpec, RouteSpec

VLLM = FlagDialectSpec(
    name="vllm",
    impl="core_plugin_vllm_flags.dialect:VllmFlags",
    api=1,
    summary="Command lines and configuration files written for vLLM",
)

FIGURES = RouteSpec(
    name="vllm",
    impl="core_plugin_vllm_flags.figures:VllmFigures",
    api=1,
    summary="The figures of /metrics by vLLM's names too, where --metrics-compat says so",
)
