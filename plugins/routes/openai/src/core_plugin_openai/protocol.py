"""Request bodies. Types are strict; ranges are checked by `SamplingParams`, whoever the front end is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, Body, BodyPart, Priority, Salt, SamplingBody, TokenId, up_to
from core.api.sampling_table import SAMPLING_FIELDS
from core_plugin_openai.structured import StructuredFields

MAX_TEXT_IDS = 2**20
MAX_INTERVAL = 1024

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "prompt_embeds": "embeddings as a prompt are not accepted",
        "best_of": "best_of is not available; use n",
        "suffix": "insertion before a suffix is not available",
        "functions": "functions were replaced by tools",
        "function_call": "function_call was replaced by tool_choice",
        "return_weight_versions": "versions of the weights are not told per answer",
        "kv_transfer_params": "KV connectors take no parameters of requests",
        "ec_transfer_params": "there is no encoder cache",
        "media_io_kwargs": "this server reads text only",
        "mm_processor_kwargs": "this server reads text only",
        "mm_payload": "this server reads text only",
        "return_mm_kwargs": "this server reads text only",
        "grammar_lazy": "a grammar holds from the answer's beginning on; use a structural tag",
        "watermarking": "outputs are not watermarked",
    }
)
"""Fields of these APIs that would change the answer if they were ignored, and what to say about each."""


PLUGIN_FIELDS = ("return_routed_experts", "routed_experts_prompt_start")
"""Fields of these APIs that plugins read: the same as arguments in `vllm_xargs`."""


class StreamOptions(BodyPart):
    """Options of a stream: the usage that it reports."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None

    @property
    def usage_so_far(self) -> bool:
        """Whether every event has the usage so far; without `include_usage` none says anything about it."""
        return bool(self.include_usage and self.continuous_usage_stats)


_OTHERWISE = frozenset({"n", "max_tokens", "logprobs", "logprob_token_ids", "prompt_logprobs"})
"""Sampling parameters that these APIs have not all, or not under the same name."""


class SharedFields(SamplingBody, fields=[name for name in SAMPLING_FIELDS if name not in _OTHERWISE]):
    """Fields that mean the same in every OpenAI API here, the sampling parameters of core among them."""

    stream: bool | None = None
    stream_interval: Annotated[int, Field(ge=1, le=MAX_INTERVAL)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Priority | None = None
    cache_salt: Salt | None = None
    user: str | None = None
    safety_identifier: str | None = None


class GenerationBody(
    Body, SharedFields, StructuredFields, fields=("n", "max_tokens", "prompt_logprobs", "logprob_token_ids")
):
    """Fields that chat and plain completions share."""

    refused: ClassVar[Mapping[str, str]] = REFUSED

    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    vllm_xargs: dict[str, Any] | None = None
    return_routed_experts: bool | None = None
    routed_experts_prompt_start: int | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool | None = None

    stream_options: StreamOptions | None = None
    echo: bool | None = None
    return_prompt_text: bool | None = None
    return_token_offsets: bool | None = None
    request_id: str | None = None

    @classmethod
    def harmless(cls, name: str, fields: Mapping[str, Any]) -> bool:
        """Whether a refused field asks for nothing, as it was sent."""
        return not fields[name] or (name == "best_of" and fields[name] == fields.get("n", 1))


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)]
    logprobs: bool | None = None
    top_logprobs: int | None = None
    max_completion_tokens: int | None = None
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    documents: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class CompletionBody(GenerationBody):
    """`POST /v1/completions`. `prompt` is a text, a list of texts, token ids, or a list of token-id lists."""

    prompt: Any = None
    logprobs: int | None = None


class TokenizeBody(Body):
    """`POST /tokenize`: a text or a conversation."""

    refused: ClassVar[Mapping[str, str]] = REFUSED

    prompt: str | None = None
    messages: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES, 1)] | None = None
    tools: Annotated[list[dict[str, Any]], up_to(MAX_TOOLS)] | None = None
    documents: Annotated[list[dict[str, Any]], up_to(MAX_MESSAGES)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: Annotated[list[TokenId], up_to(MAX_TEXT_IDS)]
