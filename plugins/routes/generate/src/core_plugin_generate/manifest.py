"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

GENERATE = RouteSpec(
    name="generate",
    impl="core_plugin_generate.routes:GenerateRoutes",
    api=1,
    summary="SGLang's /generate and llama.cpp's /completion",
    mounts=("/generate", "/get_model_info", "/model_info", "/completion", "/completions", "/props"),
)
