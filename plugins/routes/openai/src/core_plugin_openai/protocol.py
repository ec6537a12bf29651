"""Request bodies. Types are strict; ranges are checked by `SamplingParams`, whoever the front end is."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from core.api.bodies import MAX_MESSAGES, MAX_TOOLS, Body, BodyPart, Priority, Salt, few, up_to
from core.api.sampling import MAX_BAD_WORDS, MAX_LOGPROBS, MAX_STOPS, MAX_TOKEN_LIST, MAX_TOKENS
from core_plugin_openai.structured import StructuredFields

MAX_ALLOWED_TOKENS = 2**18
MAX_TEXT_IDS = 2**20
MAX_INTERVAL = 1024

TokenId = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
TokenKey = Annotated[int, Field(strict=False, ge=0, le=MAX_TOKENS)]


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
    """What a stream says about usage."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None

    @property
    def usage_so_far(self) -> bool:
        """Whether every event has the usage so far; without `include_usage` none says anything about it."""
        return bool(self.include_usage and self.continuous_usage_stats)


class SharedFields(BaseModel):
    """Fields that mean the same in every OpenAI API here; see also `params.SAME_NAME`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Annotated[dict[TokenKey, float], few(MAX_TOKEN_LIST)] | None = None
    allowed_token_ids: Annotated[list[TokenId], up_to(MAX_ALLOWED_TOKENS)] | None = None
    bad_words: Annotated[list[str], up_to(MAX_BAD_WORDS)] | None = None
    min_tokens: int | None = None
    stop: str | Annotated[list[str], up_to(MAX_STOPS)] | None = None
    stop_token_ids: Annotated[list[TokenId], up_to(MAX_TOKEN_LIST)] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    skip_special_tokens: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: dict[str, Any] | None = None

    stream: bool | None = None
    stream_interval: Annotated[int, Field(ge=1, le=MAX_INTERVAL)] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    priority: Priority | None = None
    cache_salt: Salt | None = None
    user: str | None = None
    safety_identifier: str | None = None


class GenerationBody(Body, SharedFields, StructuredFields):
    """Fields that chat and plain completions share."""

    refused: ClassVar[Mapping[str, str]] = REFUSED

    n: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    max_tokens: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: Annotated[list[TokenId], up_to(MAX_LOGPROBS)] | None = None
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
