"""The request model: one set of rules, told in the words of whichever front end asked."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from core.api.errors import ConfigError, RequestError
from core.api.sampling_params import Grammar, SamplingParams
from core.api.serving import ToolChoice
from core.config.flags import add_option_flags, to_argv
from core.config.load import load_options
from core.config.parser import CoreParser
from core.engine.messages import Add
from core.frontend.conversation import Conversation, conversation_of
from core.frontend.overrides import options_with
from core.frontend.prompts import Truncation
from core.frontend.request import GenerationRequest
from core.frontend.sampling import model_defaults, sampling_params
from core.frontend.spelling import renamed, spelling
from core_testing.templates import CompiledTemplate
from core_tokenizers.fast import FastTokenizer

FIELDS = st.sampled_from(
    ["role", "content", "tool_calls", "function", "name", "arguments", "type", "text", "reasoning"]
)
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}


def refused(call, param, code=None):
    with pytest.raises(RequestError) as caught:
        call()
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)
    return caught.value


# -- sampling ------------------------------------------------------------------------------------------------------


def test_what_the_client_does_not_say_comes_from_the_model():
    defaults = model_defaults(SamplingParams(temperature=0.6, top_p=0.9))
    params = sampling_params({"temperature": None, "top_p": 0.5, "stop": None, "max_tokens": None}, defaults, 100)
    assert (params.temperature, params.top_p, params.stop, params.max_tokens) == (0.6, 0.5, [], None)
    assert sampling_params({}, {}, 100) == SamplingParams()


def test_rules_between_fields_hold_for_everyone():
    refused(lambda: sampling_params({"min_tokens": 101}, {"max_tokens": None}, 100), "min_tokens")
    refused(lambda: sampling_params({"min_tokens": 5, "max_tokens": 4}, {}, 100), "min_tokens")


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-04")
def test_errors_name_the_clients_own_field():
    names = {"max_tokens": "max_output_tokens", "messages": "input"}
    with pytest.raises(RequestError) as caught, spelling(names):
        sampling_params({"max_tokens": 0}, {}, 100)
    assert caught.value.param == "max_output_tokens" and caught.value.message.startswith("max_output_tokens must")
    with pytest.raises(RequestError) as caught, spelling(names):
        Conversation(messages=[USER, {"role": "user", "content": [{"type": "image_url"}]}])
    assert caught.value.param == "input[1].content[0]" and "input[1].content[0]" in caught.value.message
    assert caught.value.code == "unsupported_content"


def test_errors_of_other_fields_are_left_alone():
    error = RequestError("temperature is too high", param="temperature", code="x", status=422)
    assert renamed(error, {"top_p": "p"}) is error
    assert renamed(RequestError("busy"), {"top_p": "p"}).param is None
    said = renamed(RequestError("stop, stopped: stop", param="stop"), {"stop": r"\1\g<0>"})
    assert (said.param, said.message) == (r"\1\g<0>", r"\1\g<0>, stopped: \1\g<0>")


@given(st.text(max_size=12), st.text(min_size=1, max_size=12), st.text(max_size=30))
def test_any_name_can_stand_for_any_other(param, own, message):
    found = renamed(RequestError(message, param=param), {"stop": own})
    assert found.status == 400 and (found.param == param or found.param.startswith(own))


# -- treatment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"priority": 2**31}, "priority"),
        ({"priority": True}, "priority"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "s" * 257}, "cache_salt"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "a b"}, "request_id"),
        ({"request_id": "a\n"}, "request_id"),
        ({"request_id": "a" * 129}, "request_id"),
    ],
)
def test_treatment_has_limits(fields, param):
    refused(lambda: GenerationRequest(prompt="a", **fields), param)
    refused(lambda: GenerationRequest(prompt="a", names={param: "mine"}, **fields), "mine")


@pytest.mark.parametrize("tokens", [0, -2, True, 1.0, None])
def test_truncations_are_numbers(tokens):
    refused(lambda: Truncation(tokens=tokens), "truncate_prompt_tokens")
    refused(lambda: Truncation(tokens=1, side="top"), "truncation_side")


def test_a_call_is_demanded_of_a_grammar_or_not_at_all():
    forced = Conversation(messages=[USER], tools=[TOOL], tool_choice=ToolChoice("function", "add"))
    error = refused(lambda: GenerationRequest(prompt=forced).check_call(), "tool_choice", "unsupported_parameter")
    assert "structured output" in error.message
    params = SamplingParams(grammar=Grammar("json_object"))
    GenerationRequest(prompt=forced, params=params).check_call()


# -- conversations -------------------------------------------------------------------------------------------------


@pytest.mark.covers("REND-01")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": USER}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [USER, {"role": "wizard", "content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": "a", "reasoning": 3}]}, "messages[0].reasoning"),
        ({"tools": [{"type": "web"}]}, "tools[0]"),
        ({"tools": ["add"]}, "tools[0]"),
        ({"tools": [TOOL, {"type": "function", "function": {"name": ""}}]}, "tools[1]"),
        ({"tool_choice": ToolChoice("required")}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": ToolChoice("function", "sub")}, "tool_choice"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"template_args": {"messages": []}}, "template_args"),
        ({"template_args": {"chat_template": "x"}}, "template_args"),
        ({"template_args": {"_x": 1}}, "template_args"),
        ({"template_args": {"a b": 1}}, "template_args"),
        ({"template_args": {f"a{number}": 1 for number in range(65)}}, "template_args"),
    ],
    ids=str,
)
def test_conversations_that_cannot_be_are_refused(fields, param):
    with pytest.raises(RequestError) as caught:
        Conversation(**{"messages": [USER], **fields})
    assert (caught.value.param, caught.value.status) == (param, 400)


def test_conversations_are_made_plain():
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    said = [
        {"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "why"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "tool_calls": []},
    ]
    before = repr(said)
    chat = Conversation(messages=said)
    first, second, third = chat.messages
    assert first["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert (second["content"], second["tool_calls"][0]["function"]["arguments"]) == ("", {"a": 1})
    assert second["reasoning"] == second["reasoning_content"] == "why"
    assert "tool_calls" not in third and chat.tail == "no" and chat.chars == 4
    assert repr(said) == before


@pytest.mark.covers("REND-07")
def test_calls_without_text_leave_no_none_in_an_offline_prompt(offline):
    llm, _ = offline()
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": ""}}
    said = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "1", "content": None}
    empty = [USER, {**said, "content": ""}, {**result, "content": ""}]
    prompt = llm.chat([USER, said, result], SamplingParams(max_tokens=1))[0].prompt
    assert prompt == llm.chat(empty, SamplingParams(max_tokens=1))[0].prompt
    assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>tool\n<|im_end|>\n" in prompt


def test_no_tools_are_offered_where_none_may_be_called():
    chat = Conversation(messages=[USER], tools=[TOOL], tool_choice=ToolChoice("none"))
    assert chat.offered == [] and chat.template_input().tools is None
    assert Conversation(messages=[USER], tools=[TOOL]).template_input().tools == [TOOL]


def test_fields_and_variables_may_stand_side_by_side():
    chat = conversation_of([USER], {"tools": [TOOL], "documents": None, "enable_thinking": False, "chat_template": "x"})
    assert (chat.tools, chat.documents, chat.template, chat.template_args) == (
        [TOOL],
        None,
        "x",
        {"enable_thinking": False},
    )
    refused(lambda: conversation_of([USER], {"tokenize": False}), "template_args")


# -- entry points --------------------------------------------------------------------------------------------------


@pytest.mark.covers("REND-01")
@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt_embeds": [[0.1]]},
        {"encoder_prompt": "a", "decoder_prompt": "b"},
        {"prompt": "a", "multi_modal_data": {"image": 1}},
        {"prompt": "a", "truncation": 3},
        [[1], [2]],
        ["a", 1],
        b"bytes",
        3.5,
        None,
        {},
        [],
        "",
    ],
    ids=str,
)
def test_prompts_that_this_model_cannot_read_are_refused(online, prompt):
    async def ask():
        llm, _ = online()
        await llm.submit(GenerationRequest(prompt=prompt))

    with pytest.raises(RequestError) as caught:
        asyncio.run(ask())
    assert caught.value.param == "prompt"


def sync_ids(core):
    return [np.frombuffer(one.prompt, dtype="<i4").tolist() for one in core.sent if isinstance(one, Add)]


@pytest.mark.covers("REND-02")
def test_every_entry_point_makes_the_same_of_the_same_prompt(offline, online, tokenizer):
    llm, core = offline()
    ids = llm.model.chat_prompt(Conversation(messages=[USER])).ids.tolist()
    text = chat_text(llm, [USER])
    prompts = [text, {"prompt": text}, ids, {"prompt_token_ids": ids}, {"prompt": text, "prompt_token_ids": ids}]
    for prompt in prompts:
        llm.generate(prompt)
    llm.chat([USER])
    llm.chat([{"role": "user", "content": [{"type": "text", "text": "hi"}]}])

    async def ask():
        other, engine = online()
        conversation = Conversation(messages=[USER])
        for prompt in [*prompts, conversation]:
            async for _ in other.generate(prompt):
                pass
            async for _ in other.generate(GenerationRequest(prompt=prompt)):
                pass
        async for _ in other.generate(other.render_chat(GenerationRequest(prompt=conversation))):
            pass
        return sync_ids(engine.core)

    found = sync_ids(core) + asyncio.run(ask())
    assert len(found) == 20 and all(one == ids for one in found)


@pytest.mark.covers("REND-02")
def test_a_request_brings_its_treatment_along(online):
    async def ask():
        llm, engine = online()
        asked = GenerationRequest(
            prompt="a", params=SamplingParams(max_tokens=3), priority=-4, cache_salt="s", request_id="mine"
        )
        outputs = [output async for output in llm.generate(asked)]
        return outputs[-1], engine.core.sent[0]

    output, message = asyncio.run(ask())
    assert output.request_id == "mine" and len(output.outputs[0].token_ids) == 3
    assert (message.priority, message.cache_salt) == (-4, "s")


@pytest.mark.covers("REND-05")
@pytest.mark.parametrize("side", ["left", "right"])
def test_prompts_are_cut_alike_in_every_form(online, tokenizer, side):
    text = "abcdefghij" * 20
    messages = [{"role": "user", "content": text}]

    async def ask():
        llm, engine = online()
        whole = {True: tokenizer.encode(text), False: llm.model.inputs.tokenizer.encode(chat_text(llm, messages))}
        prompts = [text, whole[True], Conversation(messages=messages)]
        for prompt in prompts:
            for tokens in (10, -1):
                cut = Truncation(tokens=tokens, side=side)
                asked = GenerationRequest(prompt=prompt, params=SamplingParams(max_tokens=4), truncation=cut)
                async for _ in llm.generate(asked):
                    pass
        return whole, sync_ids(engine.core)

    whole, seen = asyncio.run(ask())
    for number, ids in enumerate(seen):
        keep = 60 if number % 2 else 10
        expected = whole[number < 4]
        assert ids == (expected[:keep] if side == "right" else expected[-keep:])


def chat_text(llm, messages, **named):
    return "".join(llm.model.chat_pieces(conversation_of(messages, named)))


def test_a_cut_must_leave_room(online):
    async def ask():
        llm, _ = online()
        await llm.submit(GenerationRequest(prompt="a" * 100, truncation=Truncation(tokens=64), names={"n": "x"}))

    error = refused(lambda: asyncio.run(ask()), "truncate_prompt_tokens")
    assert "64" in error.message


# -- templates -----------------------------------------------------------------------------------------------------


def test_defaults_of_template_variables_give_way_to_requests(offline, tokenizer):
    tokenizer = with_template(tokenizer, "{{ mood | default('none') }}/{{ messages[0].content }}")
    llm, _ = offline(with_tokenizer=tokenizer, model={"default_chat_template_kwargs": {"mood": "calm"}})
    assert chat_text(llm, [USER]) == "calm/hi"
    assert chat_text(llm, [USER], mood="wild") == "wild/hi"
    with pytest.raises(ConfigError) as caught:
        offline(with_tokenizer=tokenizer, model={"default_chat_template_kwargs": {"messages": []}})
    assert caught.value.code == "CORE-C136" and "default_chat_template_kwargs" in caught.value.message


@pytest.mark.parametrize("name", ["eos_token", "raise_exception", "range", "namespace"])
def test_what_belongs_to_the_model_or_the_language_cannot_be_set(offline, name):
    llm, _ = offline()
    refused(lambda: chat_text(llm, [USER], **{name: "x"}), "template_args")


def test_variables_may_be_given_as_users_of_other_engines_give_them():
    chat = conversation_of([USER], {"chat_template_kwargs": {"enable_thinking": False}, "mood": "calm"})
    assert chat.template_args == {"enable_thinking": False, "mood": "calm"}


def test_a_tool_choice_may_be_given_as_clients_give_it(offline):
    named = {"type": "function", "function": {"name": "add"}}
    for choice, mode in (
        ("none", "none"),
        (None, "auto"),
        ("auto", "auto"),
        (named, "function"),
        ("required", "required"),
    ):
        assert conversation_of([USER], {"tools": [TOOL], "tool_choice": choice}).tool_choice.mode == mode
    for wrong in ("maybe", {"type": "function"}, {"name": "add"}, 3):
        refused(partial(conversation_of, [USER], {"tools": [TOOL], "tool_choice": wrong}), "tool_choice")
    llm, _ = offline()
    refused(lambda: llm.chat([USER], tools=[TOOL], tool_choice=named), "tool_choice", "unsupported_parameter")
    assert llm.chat([USER], tools=[TOOL], tool_choice="none")[0].finished


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(max_size=4), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages=st.lists(JSON, max_size=3) | JSON, tools=st.lists(JSON, max_size=2))
def test_whatever_json_is_sent_is_a_conversation_or_refused(messages, tools):
    try:
        chat = Conversation(messages=messages, tools=tools)
    except RequestError as error:
        assert re.match(r"(messages|tools)", error.param)
    else:
        assert chat.chars >= len(chat.tail) - chat.tail.count("\n") and chat.messages
        template = CompiledTemplate("{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}", {}).template
        template.pieces(chat.template_input())


def test_defaults_survive_the_way_from_the_command_line():
    given = {"a": {"b": 1}, "c": False, "d": None}
    options = options_with(None, {"default_chat_template_kwargs": given})
    assert options.model.default_chat_template_kwargs == given
    argv = to_argv(options)
    parser = CoreParser(prog="core")
    add_option_flags(parser)
    assert load_options(parser.parse_args(argv), {}).options == options


def test_templates_of_requests(offline):
    llm, _ = offline()
    assert chat_text(llm, [USER], chat_template="<{{ messages[0].content }}>") == "<hi>"
    refused(lambda: chat_text(llm, [USER], chat_template="{% for %}"), "chat_template")
    refused(lambda: chat_text(llm, [USER], chat_template="x" * 70_000), "chat_template")


@pytest.mark.covers("REND-07")
def test_tokens_that_a_template_writes_are_not_doubled(offline, tokenizer):
    backend = Tokenizer.from_str(tokenizer._backend.to_str())
    backend.post_processor = processors.TemplateProcessing("<|im_start|> $A", None, [("<|im_start|>", 1)])
    special = {"bos_token": "<|im_start|>"}
    llm, _ = offline(with_tokenizer=FastTokenizer(backend, special=special, chat_template="x", eos_ids=[0]))
    pieces = ["<|im_start|>a", "b"]
    assert llm.model.chat_tokens(pieces, special=True) == llm.model.chat_tokens(pieces, special=False)
    bare = llm.model.chat_tokens(["a", "b"], special=False)
    assert llm.model.chat_tokens(["a", "b"], special=True).tolist() == [1, *bare]


def with_template(tokenizer, source):
    return FastTokenizer(
        tokenizer._backend, special={"eos_token": "</s>"}, chat_template=source, eos_ids=tokenizer.eos_ids
    )
