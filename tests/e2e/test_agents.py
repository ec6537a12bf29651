"""Whole tool loops of agents' clients: a call, then two at once, the answer, and a question that sends all of it back.

The model says what the last message says, so the script of each turn is the question or the result of a tool. The
template joins texts, as many do: what a client sends back that is no text fails.
"""

from __future__ import annotations

import asyncio
import json
import socket

import openai
import pytest

pytestmark = [pytest.mark.covers("API-01", "TOOL-01"), pytest.mark.timeout(180)]

TEMPLATE = """{%- set seen = namespace(calls=0) -%}
{%- for message in messages -%}
    {%- for call in message.tool_calls or [] -%}
        {%- set seen.calls = seen.calls + 1 -%}
        {%- for name, value in call.function.arguments.items() %}{{ name + '=' + value }}{% endfor -%}
    {%- endfor -%}
    {%- if message.role == 'tool' -%}
        {%- set seen.calls = seen.calls - 1 -%}
        {%- if seen.calls < 0 %}{{ raise_exception('a result without a call') }}{% endif -%}
    {%- endif -%}
    {%- if loop.last %}<|script|>{% else %}{{ message.role + ': ' }}{% endif -%}
    {{ message.content + ('' if loop.last else '\\n') }}
{%- endfor -%}
{%- if add_generation_prompt %}<|emit|>{% endif -%}"""
FLAGS = ("--threads", "1", "--num-blocks", "400", "--served-model-name", "scripted", "--chat-template", TEMPLATE)
PARSERS = ("--tool-parser", "hermes", "--reasoning-parser", "qwen3")
CALL = '<tool_call>\n{"name": "warmth", "arguments": {"city": "%s"}}\n</tool_call>'
QUESTION = f"<think>\nOslo first.\n</think>\n\n{CALL % 'Oslo'}"
RESULTS = {"Oslo": f"{CALL % 'Rome'}\n{CALL % 'Cairo'}", "Rome": "20 degrees", "Cairo": "30 degrees"}
AGAIN = "Cairo is warmer."
WARMTH = {
    "name": "warmth",
    "description": "How warm a city is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CHAT_TOOL = {"type": "function", "function": WARMTH}
RESPONSES_TOOL = {"type": "function", "strict": False, **WARMTH}


class Warmth:
    """The tool.

    Attributes:
        asked: Cities that it was called with.
    """

    def __init__(self):
        self.asked = []

    def __call__(self, city):
        self.asked.append(city)
        return RESULTS[city]

    def call(self, arguments):
        return self(**(json.loads(arguments) if isinstance(arguments, str) else arguments))


@pytest.fixture(scope="module")
def url(launch, scripted):
    checkpoint, plugin = scripted
    return f"{launch(checkpoint, *PARSERS, *FLAGS, PYTHONPATH=plugin).wait_ready().url}/v1"


@pytest.fixture
def alone(monkeypatch):
    """The clients look up no prices, read no files of settings and report to nobody: no other name is looked up."""
    settings = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",
        "LANGSMITH_TRACING": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    hosts, resolve = set(), socket.getaddrinfo

    def noted(host, *args, **named):
        hosts.add(host)
        return resolve(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    yield
    assert hosts <= {"127.0.0.1"}  # none where a connection is kept, or an address needs no look-up


def chat_loop(ask, tool):
    """Ask until there are no calls; `ask` returns the message of an answer as the client sends it back."""
    messages, said = [{"role": "user", "content": QUESTION}], []
    for question in (None, AGAIN):
        if question is not None:
            messages.append({"role": "user", "content": question})
        while True:
            message = ask(messages)
            messages.append(message)
            for call in message.get("tool_calls") or ():
                content = tool.call(call["function"]["arguments"])
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
            if not message.get("tool_calls"):
                break
        said.append(message["content"])
    return said


def openai_chat(url, tool, streamed):
    fields = {"model": "scripted", "tools": [CHAT_TOOL]}
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:

        def ask(messages):
            if not streamed:
                return client.chat.completions.create(messages=messages, **fields).choices[0].message.model_dump()
            with client.chat.completions.stream(messages=messages, **fields) as stream:
                return stream.get_final_completion().choices[0].message.model_dump()

        return chat_loop(ask, tool)


def openai_responses(url, tool, streamed):
    fields = {"model": "scripted", "tools": [RESPONSES_TOOL]}
    items, said = [{"role": "user", "content": QUESTION}], []
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:

        def ask():
            if not streamed:
                return client.responses.create(input=items, **fields)
            with client.responses.stream(input=items, **fields) as stream:
                return stream.get_final_response()

        for question in (None, AGAIN):
            items += [] if question is None else [{"role": "user", "content": question}]
            while True:
                answer = ask()
                items += [item.model_dump() for item in answer.output]
                calls = [item for item in answer.output if item.type == "function_call"]
                results = ((call.call_id, tool.call(call.arguments)) for call in calls)
                items += [{"type": "function_call_output", "call_id": name, "output": text} for name, text in results]
                if not calls:
                    break
            said.append(answer.output_text)
    return said


def litellm(url, tool, streamed):
    from litellm import completion, stream_chunk_builder

    def ask(messages):
        fields = {"model": "openai/scripted", "api_base": url, "api_key": "none", "tools": [CHAT_TOOL]}
        answer = completion(messages=messages, stream=streamed, max_retries=0, **fields)
        if streamed:
            answer = stream_chunk_builder(list(answer), messages=messages)
        return answer.choices[0].message.model_dump()

    return chat_loop(ask, tool)


def langchain(url, tool, streamed, **options):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model="scripted", base_url=url, api_key="none", max_retries=0, **options).bind_tools([CHAT_TOOL])
    messages, said = [HumanMessage(QUESTION)], []
    for question in (None, AGAIN):
        messages += [] if question is None else [HumanMessage(question)]
        while True:
            if streamed:
                first, *others = model.stream(messages)
                answer = sum(others, first)
            else:
                answer = model.invoke(messages)
            messages.append(answer)
            messages += [ToolMessage(tool.call(call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]
            if not answer.tool_calls:
                break
        said.append(answer.text)
    return said


def langchain_responses(url, tool, streamed):
    return langchain(url, tool, streamed, use_responses_api=True)


def pydantic_ai(url, tool, streamed, model="OpenAIChatModel"):
    from pydantic_ai import Agent
    from pydantic_ai.models import openai as models
    from pydantic_ai.providers.openai import OpenAIProvider

    async def warmth(city: str) -> str:
        """How warm a city is."""
        return tool(city)

    async def converse():
        provider = OpenAIProvider(base_url=url, api_key="none")
        agent = Agent(getattr(models, model)("scripted", provider=provider), tools=[warmth])
        said, history = [], []
        for question in (QUESTION, AGAIN):
            if streamed:
                async with agent.run_stream(question, message_history=history) as answer:
                    said.append(await answer.get_output())
            else:
                answer = await agent.run(question, message_history=history)
                said.append(answer.output)
            history = answer.all_messages()
        return said

    return asyncio.run(converse())


def pydantic_ai_responses(url, tool, streamed):
    return pydantic_ai(url, tool, streamed, "OpenAIResponsesModel")


def openai_agents(url, tool, streamed, model="OpenAIChatCompletionsModel"):
    import agents

    @agents.function_tool
    def warmth(city: str) -> str:
        """How warm a city is."""
        return tool(city)

    async def converse():
        client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        agent = agents.Agent("scripted", model=getattr(agents, model)("scripted", client), tools=[warmth])
        said, items = [], []
        for question in (QUESTION, AGAIN):
            items = [*items, {"role": "user", "content": question}]
            if streamed:
                answer = agents.Runner.run_streamed(agent, items)
                async for _ in answer.stream_events():
                    continue
            else:
                answer = await agents.Runner.run(agent, items)
            said.append(answer.final_output)
            items = answer.to_input_list()
        return said

    return asyncio.run(converse())


def openai_agents_responses(url, tool, streamed):
    return openai_agents(url, tool, streamed, "OpenAIResponsesModel")


CLIENTS = [openai_chat, openai_responses, litellm, langchain, langchain_responses]
CLIENTS += [pydantic_ai, pydantic_ai_responses, openai_agents, openai_agents_responses]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_a_client_runs_a_whole_tool_loop(url, alone, client, streamed):
    tool = Warmth()
    said = client(url, tool, streamed)
    assert [text.strip() for text in said] == ["30 degrees", AGAIN]
    assert tool.asked == ["Oslo", "Rome", "Cairo"]
