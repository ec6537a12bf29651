"""What route plugins ask for, as requests of the front end; errors name the fields of the plugin's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api.errors import RequestError
from core.api.grammars import Grammar, schema_grammar, structured_output
from core.api.sampling_params import SamplingParams
from core.api.serving import AnswerRequest, ChatRequest, TextRequest
from core.frontend.answering.parsing import thinking_switches
from core.frontend.beams.outputs import BeamRules
from core.frontend.conversation import Conversation
from core.frontend.prompts import PromptInput, Truncation, check_ids, prompt_ids
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.server.caller import caller_of
from core.server.state import ServerState


def generation_requests(asked: ChatRequest | TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    return [chat_request(asked, state)] if isinstance(asked, ChatRequest) else text_requests(asked, state)


def text_requests(asked: TextRequest, state: ServerState) -> list[GenerationRequest]:
    """Return what a plugin asks for, prompt by prompt. Raises `RequestError`, in the API's own field names."""
    params = _params(asked, state, **({"max_tokens": 1} if asked.only_prompt else {}))
    return [_request(asked, _prompt(prompt, asked, state), params) for prompt in asked.prompts]


def _prompt(prompt: str | Sequence[int], asked: TextRequest, state: ServerState) -> PromptInput:
    if isinstance(prompt, str):
        return prompt if asked.add_special_tokens else {"prompt": prompt, "add_special_tokens": False}
    check_ids(prompt, state.llm.tokenizer.vocab_size, asked.names.get("prompt", "prompt"))
    return prompt_ids(prompt)


def chat_request(asked: ChatRequest, state: ServerState) -> GenerationRequest:
    """Return what a plugin asks for about a conversation. Raises `RequestError`, in the API's own field names."""
    params = _params(asked, state)
    thinking = {} if asked.thinking is None else thinking_switches(asked.thinking)
    with spelling(asked.names):
        chat = Conversation(
            messages=asked.messages,
            tools=asked.tools,
            tool_choice=asked.tool_choice,
            parallel_tool_calls=asked.parallel_tool_calls,
            documents=asked.documents,
            add_generation_prompt=asked.opened and not asked.continued,
            continue_final_message=asked.continued,
            add_special_tokens=asked.add_special_tokens,
            template=asked.template,
            template_args={**thinking, **asked.template_args},
        )
    return _request(asked, chat, params)


def _params(asked: AnswerRequest, state: ServerState, **changes: Any) -> SamplingParams:
    fields = {**asked.sampling, **changes}
    if asked.structured is not None:
        fields["grammar"] = grammar_of(asked.structured, asked.names)
    defaults = state.defaults if asked.beams is None else {}  # which are for sampling
    with spelling(asked.names):
        return sampling_params(fields, defaults, state.llm.max_model_len)


def grammar_of(structured: Mapping[str, Any], names: Mapping[str, str]) -> Grammar | None:
    """Return what the text must be; a kind that stands in a field of its own is called by that."""
    whole = names.get("structured", "structured")
    if set(structured) == {"json"}:
        return schema_grammar(structured["json"], param=names.get("structured.json", f"{whole}.json"))
    grammar = structured_output(structured, param=whole)
    own = next((names[field] for kind in structured if (field := f"structured.{kind}") in names), None)
    return grammar if grammar is None or own is None else grammar.replace(param=own)


def _request(asked: AnswerRequest, prompt: Conversation | PromptInput, params: SamplingParams) -> GenerationRequest:
    with spelling(asked.names):
        return GenerationRequest(
            prompt=prompt,
            params=params,
            priority=asked.priority,
            cache_salt=asked.cache_salt,
            request_id=asked.request_id,
            caller=caller_of(asked.user),
            truncation=_truncation(asked),
            beams=_beams(asked, params),
            names=asked.names,
        )


def _truncation(asked: AnswerRequest) -> Truncation | None:
    cut = asked.truncate_prompt_tokens
    if cut is not None:
        return Truncation(tokens=cut, side=asked.truncation_side or "left")
    if asked.truncation_side is not None:
        raise RequestError("truncation_side needs truncate_prompt_tokens.", param="truncation_side")
    return None


def _beams(asked: AnswerRequest, params: SamplingParams) -> BeamRules | None:
    if asked.beams is None:
        return None
    rules = BeamRules(**{name: value for name, value in asked.beams.items() if value is not None})
    rules.params(params)  # refuses what beams do not follow
    return rules
