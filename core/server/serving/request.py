"""From requests of route plugins to those of the front end; errors name the fields of the plugin's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api.grammars import Grammar, schema_grammar, structured_output
from core.api.serving import AnswerRequest, ChatRequest, TextRequest
from core.frontend.beams.outputs import beam_rules
from core.frontend.conversation import asked_conversation
from core.frontend.prompts import PromptInput, check_ids, prompt_ids, truncation
from core.frontend.request import GenerationRequest
from core.frontend.sampling import sampling_params
from core.frontend.spelling import spelling
from core.server.serving.caller import caller_of
from core.server.state import ServerState


def generation_requests(asked: ChatRequest | TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    return [chat_request(asked, state)] if isinstance(asked, ChatRequest) else text_requests(asked, state)


def text_requests(asked: TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    prompts = [_prompt(prompt, asked, state) for prompt in asked.prompts]
    return _requests(asked, prompts, state, {"max_tokens": 1} if asked.only_prompt else {})


def _prompt(prompt: str | Sequence[int], asked: TextRequest, state: ServerState) -> PromptInput:
    if isinstance(prompt, str):
        return prompt if asked.add_special_tokens else {"prompt": prompt, "add_special_tokens": False}
    check_ids(prompt, state.llm.tokenizer.vocab_size, asked.names.get("prompt", "prompt"))
    return prompt_ids(prompt)


def chat_request(asked: ChatRequest, state: ServerState) -> GenerationRequest:
    """Return what a plugin asks for about a conversation. Raises `RequestError`, in the API's own field names."""
    (request,) = _requests(asked, [asked], state, {})
    return request


def _requests(
    asked: AnswerRequest, prompts: Sequence[PromptInput | ChatRequest], state: ServerState, changes: Mapping[str, Any]
) -> list[GenerationRequest]:
    """Return the requests for prompts, or a conversation; all have the same parameters.

    Args:
        changes: Sampling fields that differ from those that were asked for.
    """
    fields = {**asked.sampling, **changes}
    if asked.structured is not None:
        fields["grammar"] = grammar_of(asked.structured, asked.names)
    defaults = state.defaults if asked.beams is None else {}  # which are for sampling
    with spelling(asked.names):
        params = sampling_params(fields, defaults, state.llm.max_model_len)
        return [
            GenerationRequest(
                prompt=asked_conversation(prompt) if isinstance(prompt, ChatRequest) else prompt,
                params=params,
                priority=asked.priority,
                cache_salt=asked.cache_salt,
                request_id=asked.request_id,
                caller=caller_of(asked.user),
                truncation=truncation(asked.truncate_prompt_tokens, asked.truncation_side),
                beams=None if asked.beams is None else beam_rules(asked.beams, params),
                names=asked.names,
            )
            for prompt in prompts
        ]


def grammar_of(structured: Mapping[str, Any], names: Mapping[str, str]) -> Grammar | None:
    """Return what the text must be; a kind that stands in a field of its own is called by that."""
    whole = names.get("structured", "structured")
    if set(structured) == {"json"}:
        return schema_grammar(structured["json"], param=names.get("structured.json", f"{whole}.json"))
    grammar = structured_output(structured, param=whole)
    own = next((names[field] for kind in structured if (field := f"structured.{kind}") in names), None)
    return grammar if grammar is None or own is None else grammar.replace(param=own)
