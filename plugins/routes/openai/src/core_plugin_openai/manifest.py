"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import OptionSection, RouteSpec

OPENAI = RouteSpec(
    name="openai",
    impl="core_plugin_openai.routes:OpenAIRoutes",
    api=1,
    summary="OpenAI's API: chat, completions, models; tokens and prompts as they are rendered",
    mounts=(
        "/v1/chat",
        "/v1/completions",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/tokenizer_info",
        "/apply-template",
    ),
    automatic=True,
    settings=("stream_interval", "return_tokens_as_token_ids", "tokenizer_info"),
)

RESPONSES = RouteSpec(
    name="responses",
    impl="core_plugin_openai.responses.routes:ResponsesRoutes",
    api=1,
    summary="OpenAI's Responses API, with the tools of tool servers",
    mounts=("/v1/responses",),
    automatic=True,
    settings=(
        "stream_interval",
        "return_tokens_as_token_ids",
        "response_store",
        "response_store_bytes",
        "mcp_server",
        "mcp_headers",
        "allow_mcp_url",
        "mcp_timeout",
        "mcp_result_chars",
        "mcp_rounds",
    ),
    drives=("core.tool_servers",),
    exposed_headers=("x-core-response-stored",),
)

OPENAI_OPTIONS = OptionSection(
    name="openai",
    impl="core_plugin_openai.options:OpenAIOptions",
    api=1,
    summary="Options of OpenAI's API",
)

RESPONSES_OPTIONS = OptionSection(
    name="responses",
    impl="core_plugin_openai.options:ResponsesOptions",
    api=1,
    summary="Options of OpenAI's Responses API",
)
