"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

AZURE = RouteSpec(
    name="azure",
    impl="acme_core_azure.routes:AzureRoutes",
    api=1,
    summary="Azure OpenAI's API: POST /openai/deployments/{deployment}/chat/completions",
    mounts=("/openai/deployments",),
    key_headers=("api-key",),
    options="acme_core_azure.options:AzureOptions",
)
