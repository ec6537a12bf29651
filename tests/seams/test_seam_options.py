"""Every kind's plugin declares options and gets them: what is given, completed with defaults."""

from __future__ import annotations

import sys

import pytest

from core import LLM, SamplingParams
from core.api import CoreError, IOContext
from core.api.grammars import Grammar
from core.cli.main import main
from core.frontend import front_plugins
from core.plugins.active import enter
from core.plugins.kinds import KINDS
from core.plugins.plan import PluginPlan
from core.server.plugin_routes.table import RouteTable
from core_testing.tinymodels import tiny_llama

WORDS = {"first": "given", "second": "by default"}
ECHO = '''
from dataclasses import replace

from pydantic import BaseModel

from core.api import *
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors, load_impl

SEEN = {}
MADE = {}


class EchoOptions(BaseModel):
    first: str = "unsaid"
    second: str = "by default"


def plain(group, base):
    def __init__(self, options):
        SEEN[group] = dict(options)
        base.__init__(self)

    return __init__


def first(group, base):
    def __init__(self, options, **more):
        SEEN[group] = dict(options)
        base.__init__(self, {}, **more)  # what it is a variant of does not know them

    return __init__


def context(group, base):
    def __init__(self, ctx):
        SEEN[group] = dict(ctx.options)
        base.__init__(self, replace(ctx, options={}))

    return __init__


def model(group, base):
    def __init__(self, config, build):
        SEEN[group] = dict(build.options)
        base.__init__(self, config, build)

    return __init__


def parser(group, base):
    def make(ctx):
        SEEN[group] = dict(ctx.options)
        return base(ctx)

    return make


def variant(group, name, how, **changes):
    """Make a plugin `echo` of what another one is, that notes its options."""
    entry = Catalogue.scan().find(group, name)
    descriptor = load_descriptors([entry])[0][0].descriptor
    base = load_impl(descriptor.impl, entry)
    place = group.partition(".")[2]
    MADE[place] = how(group, base) if how is parser else type("Echo", (base,), {"__init__": how(group, base)})
    return descriptor.replace(name="echo", impl=f"echo:MADE_{place}", options="echo:EchoOptions", **changes)


def MADE_kernels(options):
    SEEN["core.kernels"] = dict(options)
    return lambda x, weight, eps: x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight


class Sink:
    def __init__(self, options): SEEN["core.stat_sinks"] = dict(options)
    def record(self, stats): ...
    def finished(self, request): ...
    def close(self): ...


class Logits:
    is_argmax_invariant = True

    def __init__(self, ctx): SEEN["core.logits"] = dict(ctx.options)
    def admit(self, row, params, prompt): return False
    def release(self, row): ...
    def apply(self, logits, rows, output_counts): ...


class Processor:
    def __init__(self, ctx): SEEN["core.io_processors"] = dict(ctx.options)
    def parse_request(self, data): ...
    def pre_process(self, request): ...
    def post_process(self, request, outputs): ...


class Guesser:
    def __init__(self, ctx): SEEN["core.drafters"] = dict(ctx.options)
    def admit(self, row, prompt): ...
    def propose(self, rows, known, tokens, out): return rows * 0
    def release(self, row): ...


class Part(Participant):
    def __init__(self, setup):
        SEEN["core.participants"] = dict(setup.options)
        super().__init__(setup)


def choose(facts):
    SEEN["core.tasks"] = dict(facts.options)


class Routes:
    def __init__(self, options): SEEN["core.routes"] = dict(options)
    def declare(self, registry): ...
    def bind(self, client): ...


__core_options__ = "echo:EchoOptions"


@hookimpl
def core_configure(options):
    SEEN["core.plugins"] = dict(options)


@hookimpl
def core_request(request, options):
    SEEN["core.plugins: core_request"] = dict(options)
'''

DRIVERS = """

__core_drivers__ = [
    variant("core.platforms", "cpu", plain),
    variant("core.attention_backends", "torch_sdpa", context),
    variant("core.quantization", "none", context),
    variant("core.models", "llama", model),
    variant("core.weight_loaders", "safetensors", plain),
    variant("core.model_sources", "local", plain),
    variant("core.executors", "inproc", context),
    variant("core.schedulers", "fcfs", plain),
    variant("core.tool_parsers", "hermes", parser),
    variant("core.chat_templates", "jinja", plain),
    variant("core.kv_connectors", "cpu_offload", first),
    variant("core.weight_transfer", "disk", first),
    variant("core.weight_stores", "mapped", first),
    variant("core.structured_output", "llguidance", context),
    variant("core.tool_servers", "mcp", first),
    KernelSpec(name="echo", impl="echo:MADE_kernels", api=1, summary="", op="rms_norm", devices={"cpu"},
               dtypes={"float32"}, options="echo:EchoOptions"),
    LogitsSpec(name="echo", impl="echo:Logits", api=1, summary="", options="echo:EchoOptions"),
    StatSinkSpec(name="echo", impl="echo:Sink", api=1, summary="", options="echo:EchoOptions"),
    IOProcessorSpec(name="echo", impl="echo:Processor", api=1, summary="", options="echo:EchoOptions"),
    # Parts travel by name, so these have others than the connector.
    DrafterSpec(name="guessing", impl="echo:Guesser", api=2, summary="", options="echo:EchoOptions"),
    ParticipantSpec(name="echoed", impl="echo:Part", api=1, summary="", options="echo:EchoOptions"),
    TaskSpec(name="echo", impl="echo:Part", worker_impl="echo:Part", front_impl="echo:Part", choose="echo:choose",
             api=1, summary="", options="echo:EchoOptions"),
    RouteSpec(name="echo", impl="echo:Routes", api=1, summary="", options="echo:EchoOptions"),
]
globals().update({f"MADE_{place}": made for place, made in MADE.items()})
"""
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
GENERATING = {
    "core.platforms": "platform",
    "core.attention_backends": "attention_backend",
    "core.quantization": "quantization",
    "core.models": "model_impl",
    "core.weight_loaders": "load_format",
    "core.model_sources": "model_source",
    "core.executors": "executor",
    "core.schedulers": "scheduler_policy",
    "core.tool_parsers": "tool_parser",
    "core.chat_templates": "chat_template_engine",
    "core.kv_connectors": "kv_connector",
    "core.weight_transfer": "weight_transfer",
    "core.weight_stores": "weight_store",
    "core.structured_output": "structured_output",
    "core.logits": "logits_processor",
    "core.stat_sinks": "stat_sink",
    "core.participants": "participant",
    "core.drafters": "drafter",
}
ELSEWHERE = {"core.kernels", "core.routes", "core.tool_servers", "core.plugins", "core.io_processors", "core.tasks"}
IN_ITS_OWN_TEST = {"core.commands"}
HAVE_NONE = {"core.flag_dialects", "core.option_sections"}
"""They are asked while options are read."""


def test_every_kind_is_here():
    assert set(KINDS) == {*GENERATING, *ELSEWHERE, *IN_ITS_OWN_TEST, *HAVE_NONE}


@pytest.fixture(scope="module")
def echo(tmp_path_factory):
    """What the plugin of each kind was given, once every kind has had its turn."""
    folder = tmp_path_factory.mktemp("echo")
    (folder / "echo.py").write_text(ECHO + DRIVERS)
    checkpoint = str(tiny_llama(folder / "llama"))
    lists = ("kv_connector", "logits_processor", "stat_sink")
    chosen = {option: ["echo"] if option in lists else "echo" for option in GENERATING.values()}
    more = {
        "kernel": ["rms_norm=echo"],
        "route": ["echo"],
        "tool_client": "echo",
        "mcp_server": ["a=http://127.0.0.1:9"],
    }
    chosen.update(participant=["echoed"], drafter="guessing")
    own = {name: {"first": "given"} for name in ("echo", "echoed", "guessing")}
    given = {"plugin_file": [str(folder / "echo.py")], "plugin_options": own}
    options = {"dtype": "float32", "num_blocks": 60, "threads": 1, "grammar_timeout": 600, **chosen, **more, **given}
    with LLM(checkpoint, **options) as llm:
        llm.chat([{"role": "user", "content": "a"}], SamplingParams(max_tokens=1), tools=[TOOL])
        llm.generate(["a"], SamplingParams(max_tokens=1, grammar=Grammar(kind="regex", value="a+")))
        with pytest.raises(CoreError):
            llm.call("update_weights", {"path": "/no/such/file"})
        active = enter(llm.config.plan)
        RouteTable.declare(active)
        active.driven("core.tool_servers")
        echo = active.plan.of("core.stat_sinks")[0].model_copy(update={"group": "core.io_processors"})
        context = IOContext(model_name="m", model_config={}, tasks=(), labels=(), max_model_len=1, tokenizer=None)
        alone = enter(PluginPlan(drivers=(echo,), files=active.plan.files))
        front_plugins._driven(alone, echo, [echo.group], echo.group, context)
    yield sys.modules["echo"].SEEN
    del sys.modules["echo"]


@pytest.mark.parametrize("group", [*GENERATING, *sorted(ELSEWHERE)])
def test_a_plugin_gets_its_options(echo, group):
    assert echo[group] == WORDS


def test_every_hook_gets_the_options_of_its_module(echo):
    assert echo["core.plugins: core_request"] == WORDS


def test_a_command_gets_what_the_file_and_the_environment_say(plugins, monkeypatch, tmp_path, capsys):
    plugins("command")
    assert main(["greet", "you"]) == 0 and capsys.readouterr().out == "hello you\n"
    (tmp_path / "core.toml").write_text('[runtime.plugin_options.greet]\nword = "hi"\n')
    monkeypatch.setenv("CORE_CONFIG", str(tmp_path / "core.toml"))
    assert main(["greet", "you"]) == 0 and capsys.readouterr().out == "hi you\n"
    (tmp_path / "core.toml").write_text('[runtime.plugin_options.greet]\nwords = "hi"\n')
    assert main(["greet", "you"]) == 2 and "CORE-C111 options of plugin 'greet'" in capsys.readouterr().err
