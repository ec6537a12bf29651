"""Every kind has a page, and what the page says and shows is so: its example installs, loads and works."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import core.api as api
from core import LLM, SamplingParams
from core.api import hooks as specifications
from core.api.descriptors import DESCRIPTORS, Descriptor
from core.api.sampling_params import Grammar
from core.cli import main as cli
from core.plugins.drivers import load_descriptors, load_impl
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP, KINDS
from core_testing.tinyencoders import tiny_encoder
from core_testing.tinymodels import tiny_llama

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "plugins" / "kinds"
PROTOCOLS = {
    "core.platforms": (api.Platform, api.GraphFacet, api.CollectiveFacet),
    "core.attention_backends": (api.AttentionBackend, api.AttentionLayer, api.AfterLoad, api.ReportsKV, api.KVManager),
    "core.quantization": (api.Format,),
    "core.models": (api.Model, api.LayerBuilder),
    "core.weight_loaders": (api.CheckpointReader,),
    "core.model_sources": (api.ModelSource, api.ReachesOut, api.KeepsModels, api.RemovesModels),
    "core.tool_parsers": (api.OutputParser,),
    "core.chat_templates": (api.TemplateEngine, api.ChatTemplate),
    "core.kv_connectors": (api.KVConnector, api.KVConnectorWorker),
    "core.weight_transfer": (api.WeightReceiver,),
    "core.weight_stores": (api.WeightStore,),
    "core.executors": (api.Executor,),
    "core.schedulers": (api.SchedulerPolicy, api.AdmissionPolicy, api.ChunkPolicy),
    "core.logits": (api.LogitsProcessor,),
    "core.stat_sinks": (api.StatSink,),
    "core.io_processors": (api.IOProcessor,),
    "core.routes": (api.RoutePlugin, api.RouteRegistry, api.EngineClient, api.Operator),
    "core.commands": (api.Command, api.UsesHost),
    "core.flag_dialects": (api.FlagDialect,),
    "core.tool_servers": (api.ToolServerClient, api.ToolSession),
    "core.structured_output": (api.StructuredOutputBackend, api.CompiledGrammar, api.GrammarMatcher),
    "core.drafters": (api.Drafter,),
    "core.participants": (
        api.Participant,
        api.WorkerParticipant,
        api.FrontParticipant,
        api.Parts,
        api.AllowedTokens,
    ),
    "core.tasks": (api.Task, api.WorkerTask, api.TaskRunner, api.TaskFront),
}
"""What each page must tell of; the first is what `impl` must have."""

PATHS = ("worker_impl", "front_impl", "parts", "sender", "shape", "probe", "check", "refine", "options")
DRIVERS = sorted(group.removeprefix("core.") for group in DESCRIPTORS)
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 40}
PROMPT = {"prompt_token_ids": [5, 9, 14, 3, 3, 77, 8]}


def _fields(kind):
    """Names of a descriptor's fields, those of its bases included."""
    return {name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())}


def _members(protocol):
    """Names that a protocol asks for, attributes included."""
    annotated = set(getattr(protocol, "__annotations__", {}))
    return sorted({name for name in vars(protocol) if not name.startswith("_")} | annotated)


def test_every_kind_has_a_page_and_every_page_a_kind():
    names = {group.removeprefix("core.") for group in KINDS if group != HOOKS_GROUP} | {"hooks", "kinds"}
    assert {path.stem for path in PAGES.glob("*.md")} == names | {"README"}


def test_the_list_of_kinds_is_the_table_of_versions():
    rows = re.findall(r"^\| \[.*?\| `(core\.\w+)` \| (\d+) \| (\w+) \|", (PAGES / "README.md").read_text(), re.M)
    assert {group: (int(number), tier) for group, number, tier in rows} == {
        group: (kind.api, kind.tier) for group, kind in KINDS.items()
    }


@pytest.mark.parametrize("page", DRIVERS)
def test_a_page_tells_every_field_and_every_method(page):
    text = (PAGES / f"{page}.md").read_text()
    kind = DESCRIPTORS[f"core.{page}"]
    fields = _fields(kind) - _fields(Descriptor)
    assert {name for name in fields if f"| `{name}` |" not in text} == set()
    members = {name for protocol in PROTOCOLS.get(f"core.{page}", ()) for name in _members(protocol)}
    assert {name for name in members if name not in text} == set()
    assert f"| API integer, tier | {KINDS[kind.group].api}, {KINDS[kind.group].tier} |" in text
    flag = KINDS[kind.group].flag
    assert flag in text


@pytest.mark.parametrize("page", DRIVERS)
def test_the_example_of_a_page_installs_and_loads(example, page):
    found = example(page)
    assert f"core.{page}" in {entry.group for entry in found.entries}
    for entry in found.entries:
        candidates, failures = load_descriptors([entry])
        assert failures == []
        descriptor = candidates[0].descriptor
        implementation = load_impl(descriptor.impl, entry)
        for name in _members(PROTOCOLS[entry.group][0]) if entry.group in PROTOCOLS else ():
            made = f"self.{name} = " in inspect.getsource(implementation)
            assert made or hasattr(implementation, name), f"{descriptor.impl} has no {name}"
        paths = [path for name, path in descriptor.to_dict().items() if name in PATHS and path is not None]
        assert all(load_impl(path, entry) is not None for path in paths)


FILES = re.compile(r"^```(?:toml|python) file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^```(?:toml|python)\n# (\S+\.(?:toml|py))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def built(tmp_path_factory, fresh_environment):
    """Page -> the wheel of its example: the files of the page, built as pip builds them."""
    root, found = tmp_path_factory.mktemp("examples"), {}
    pages = {page.stem: FILES.findall(page.read_text()) for page in PAGES.glob("*.md")}
    pages = {page: files for page, files in pages.items() if files}  # that of kinds is among the example plugins
    pages["README"] = NAMED.findall((ROOT / "README.md").read_text())
    for page, files in pages.items():
        for name, text in files:
            (root / page / name).parent.mkdir(parents=True, exist_ok=True)
            (root / page / name).write_text(text)
    wheels = fresh_environment.build_wheels([root / page for page in pages], root / "wheels")
    for page, files in pages.items():
        project = tomllib.loads((root / page / "pyproject.toml").read_text())["project"]
        stem = f"{project['name'].replace('-', '_')}-"
        found[page] = (next(wheel for wheel in wheels if wheel.name.startswith(stem)), dict(files), project)
    return found


@pytest.mark.parametrize("page", [*DRIVERS, "hooks", "README"])
def test_the_example_of_a_page_can_be_built_and_says_who_it_is(built, page):
    wheel, files, project = built[page]
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
        (points,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/entry_points.txt"))
    assert names == set(files) - {"pyproject.toml"} and any(name.endswith("/__init__.py") for name in names)
    assert f"Summary: {project['description']}\n" in metadata and "License-Expression: Apache-2.0" in metadata
    for group, entries in project["entry-points"].items():
        assert f"[{group}]" in points and all(f"{name} = {value}" in points for name, value in entries.items())


def test_the_hooks_page_tells_every_hook_and_its_example_fits(example, monkeypatch):
    found = example("hooks")
    names = {name for name in vars(specifications) if name.startswith("core_")}
    assert {name for name in names if f"`{name}(" not in found.text} == set()
    hooks = Hooks(found.entries)
    assert hooks.failures == [] and hooks.has("core_request")
    ((entry, finding),) = hooks.doctor()
    assert entry.name == "house" and "GiB" in finding.message
    ((_, problem),) = hooks.validate({"server": {"host": "0.0.0.0"}})
    assert hooks.waive(problem) is None
    draft = api.RequestDraft([1] * 100_001, SamplingParams())
    assert isinstance(hooks.request(draft, lambda draft, patch: draft), api.Reject)


# -- the examples at work ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def plain(llama):
    with LLM(llama, **OPTIONS) as llm:
        return llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids


@pytest.mark.parametrize(
    ("page", "options"),
    [
        ("attention_backends", {"attention_backend": "dense"}),
        ("executors", {"executor": "nearby"}),
        ("schedulers", {"scheduling_policy": "shortest"}),
        ("kernels", {"kernel": ["rms_norm=acme_rms_norm"]}),
        ("kv_connectors", {"kv_connector": ["attic"]}),
        ("stat_sinks", {"stat_sink": ["ledger"]}),
        ("logits", {"logits_processor": ["quiet"]}),
        ("participants", {"participant": ["turns"]}),
    ],
)
def test_an_example_leaves_the_tokens_as_they_are(example, llama, plain, page, options, tmp_path):
    example(page)
    settings = {"plugin_options": {"ledger": {"path": str(tmp_path / "ledger")}}} if page == "stat_sinks" else {}
    with LLM(llama, **OPTIONS, **options, **settings) as llm:
        assert llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids == plain
    if settings:
        assert '"output_tokens": 8' in (tmp_path / "ledger").read_text()


def test_the_quantization_example_is_close_to_the_plain_weights(example, llama, plain):
    example("quantization")
    with LLM(llama, **OPTIONS, quantization="rounded") as llm:
        tokens = llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids
    assert len(tokens) == 8 and tokens[0] == plain[0]


def test_the_logits_example_lowers_what_it_is_told_to(example, llama, plain):
    example("logits")
    with LLM(llama, **OPTIONS, logits_processor=["quiet"]) as llm:
        quiet = GREEDY.replace(extra_args={"quiet": plain[:1]})
        assert llm.generate([PROMPT], quiet)[0].outputs[0].token_ids[0] != plain[0]


def test_the_participant_example_limits_callers_and_parts_their_prefixes(example, llama, plain):
    example("participants")
    ann, ben = (api.Caller(user) for user in ("ann", "ben"))
    with LLM(llama, **OPTIONS, block_size=4, participant=["turns"]) as llm:
        for caller, cached in ((ann, 0), (ann, 4), (ben, 0)):
            (output,) = llm.generate([PROMPT], GREEDY, caller=caller)
            assert output.outputs[0].token_ids == plain and output.num_cached_tokens == cached
        assert llm.call("turns_limit", 1) == 1
        assert [one.outputs[0].token_ids for one in llm.generate([PROMPT] * 3, GREEDY)] == [plain] * 3
        assert llm.call("participant_stats") == {"turns": {"running": 0, "limit": 1}}


def test_the_structured_output_example_gives_digits(example, llama):
    example("structured_output")
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=6, min_tokens=3, grammar=Grammar("regex", "[0-9]+"))
    with LLM(llama, **OPTIONS, structured_output="digits") as llm:
        assert llm.generate([PROMPT], params)[0].outputs[0].text.isdecimal()


def test_the_weight_transfer_example_brings_weights(example, llama, plain, tmp_path):
    example("weight_transfer")
    from acme_core_npz.sender import send
    from safetensors.torch import load_file

    state = load_file(f"{llama}/model.safetensors")
    send(tmp_path / "new.npz", {name: (tensor * 0 + 0.01).numpy() for name, tensor in state.items()})
    send(tmp_path / "old.npz", {name: tensor.numpy() for name, tensor in state.items()})
    with LLM(llama, **OPTIONS, weight_transfer="npz") as llm:
        llm.call("update_weights", {"path": str(tmp_path / "new.npz"), "version": "flat"})
        assert llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids != plain
        llm.call("update_weights", {"path": str(tmp_path / "old.npz"), "version": "first"})
        assert llm.generate([PROMPT], GREEDY)[0].outputs[0].token_ids == plain


def test_the_platform_example_runs_work_in_order(example):
    example("platforms")
    from acme_core_npu.platform import Npu
    from acme_core_npu.probe import probe

    assert not probe().available
    platform = Npu()
    assert platform.open(threads=None, seed=0, index=0) == torch.device("cpu")
    stream, done = platform.stream(), []
    pending = [stream.submit(lambda i=i: done.append(i) or torch.is_inference_mode_enabled()) for i in range(5)]
    assert all(one.result() for one in pending) and done == [0, 1, 2, 3, 4]
    stream.close()


def test_the_parser_example_reads_calls_in_any_pieces(example):
    example("tool_parsers")
    from acme_core_calls.parser import AcmeParser

    text = 'Look.\nCALL find {"q": 1}\nCALL stop'

    def read(size):
        parser = AcmeParser(api.ParserContext())
        return [e for i in range(0, len(text), size) for e in parser.feed(text[i : i + size])] + parser.finish()

    assert read(1) == read(7) == read(len(text))
    assert read(1)[1:3] == [api.ToolStart(0, "find"), api.ToolArguments(0, '{"q": 1}')]


def test_the_task_example_says_how_likely_prompts_are(example, llama):
    example("tasks")
    scored = SamplingParams(max_tokens=1, prompt_logprobs=0)
    ids = PROMPT["prompt_token_ids"]
    with LLM(llama, **OPTIONS) as llm:
        prompts = [ids, ids[:3]]
        asked = [llm.generate([{"prompt_token_ids": one}], scored)[0].prompt_logprobs[1:] for one in prompts]
    expected = [np.mean([of[token].logprob for of, token in zip(*pair)]) for pair in zip(asked, (ids[1:], ids[1:3]))]
    with LLM(llama, **OPTIONS, plugin_options={"likelihood": {"on": True}}) as llm:
        assert llm.run(llm.front.likelihood([ids, ids[:3], [5]])) == pytest.approx([*expected, 0.0], abs=1e-5)
        with pytest.raises(api.RequestError, match="gives log-probabilities of prompts; it does not generate"):
            llm.generate([PROMPT])
        with pytest.raises(api.RequestError, match="log-probabilities of prompts; it does not pool"):
            llm.embed([ids])


def test_the_drafter_example_says_what_earlier_answers_said(example, tmp_path):
    example("drafters")
    from acme_core_answers.drafter import Answers

    file = tmp_path / "answers.json"
    file.write_text("[[1, 2, 3, 4, 5, 6], [0, 8]]")
    drafter = Answers(api.DrafterContext(max_rows=2, max_draft=2, vocab_size=9, options={"file": str(file)}))
    tokens = np.array([[7, 1, 2, 3, 8, 8], [1, 2, 3, 8, 8, 8]], np.int32)
    out = np.zeros((2, 2), np.int32)
    drafter.admit(0, tokens[0, :2])
    drafter.admit(1, tokens[1, :1])
    assert drafter.propose(np.array([1, 0]), np.array([2, 4]), tokens, out).tolist() == [0, 2]
    assert out[1].tolist() == [4, 5]
    drafter.release(0)
    with pytest.raises(ValueError, match="another tokenizer"):
        Answers(api.DrafterContext(max_rows=2, max_draft=2, vocab_size=8, options={"file": str(file)}))


def test_the_command_example_says_hello(example, capsys):
    example("commands")
    assert cli.main(["hello", "there"]) == 0
    assert capsys.readouterr().out == "hello there\n"


def test_the_flag_dialect_example_reads_three_flags(example, capsys):
    example("flag_dialects")
    words = ["config", "show", "m", "--ctx-size", "4096", "--parallel=8", "--json"]
    assert cli.main(words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["model.max_model_len"]["value"] == 4096 and shown["scheduler.max_num_seqs"]["value"] == 8
    assert cli.main([*words, "--mlock"]) == 2
    assert "CORE-C105 --mlock is not supported. Weights stay" in capsys.readouterr().err


def test_the_section_example_has_two_options(example, capsys):
    example("option_sections")
    words = ["config", "show", "m", "--most-notes", "5", "--notes-key", "plum", "--json"]
    assert cli.main(words) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["notes.most_notes"]["value"] == 5 and shown["notes.notes_key"]["value"] == "<hidden>"
    assert cli.main(["config", "show", "m", "--most-notes", "0"]) == 2
    assert "'0' is not allowed; allowed: an integer >= 1 and <= 1000" in capsys.readouterr().err
    from acme_core_notes.manifest import NOTES
    from acme_core_notes.routes import Notes

    from core.config.resolved import Options
    from core.server.plugin_routes.table import RouteTable

    registry = RouteTable(options=Options(notes={"most_notes": 2})).registry("notes", "'notes'", NOTES)
    Notes({}).declare(registry)
    assert registry.settings == {"most_notes": 2, "notes_key": None}


def test_the_source_and_loader_examples_find_and_read(example, tmp_path, monkeypatch):
    example("model_sources")
    example("weight_loaders")
    from acme_core_plainfile.reader import PlainReader
    from acme_core_store.source import Store

    monkeypatch.setenv("CORE_PLUGIN_STORE", str(tmp_path / "store"))
    (tmp_path / "store" / "small").mkdir(parents=True)
    assert Store().resolve("elsewhere") is None
    with pytest.raises(api.CheckpointError, match="no model 'big'"):
        Store().resolve("store:big")
    path = Path(Store().resolve("store:small").path)
    (path / "acme.json").write_text('{"architectures": ["A"]}')
    np.savez(path / "weights.npz", w=np.ones((2, 3), np.float32))
    reader = PlainReader()
    assert reader.recognises(path) and reader.inspect(path).architecture == "A"
    seen = []
    (tensor,) = reader.tensors(path, seen.append)
    assert (tensor.name, tensor.shape, seen) == ("w", (2, 3), [24])
    assert torch.equal(tensor.dense(torch.float32), torch.ones(2, 3))


def test_the_route_example_declares_under_its_name(example):
    example("routes")
    from acme_core_haiku.routes import Haiku

    from core.server.plugin_routes.registry import PluginRoutes
    from core.server.plugin_routes.table import RouteTable

    table = RouteTable()
    Haiku({}).declare(PluginRoutes(table, "haiku", "'haiku'"))
    assert [(route.method, route.path) for route in table.routes] == [("POST", "/x/haiku")]


def test_the_model_example_builds_on_the_builder(example):
    found = example("models")
    from acme_core_tiny.model import Tiny
    from acme_core_tiny.shape import shape
    from core_plugin_torch_sdpa.backend import TorchSdpaBackend
    from core_plugin_unquantized.plain import Plain

    from core.layers.builder import Builder

    config = {"vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2, "max_position_embeddings": 32}
    cpu = torch.device("cpu")
    backend = TorchSdpaBackend(api.AttentionContext(cpu, torch.float32, torch.float32, 4))
    builder = Builder(Plain(api.QuantContext(cpu, torch.float32, {})), backend, device=cpu, dtype=torch.float32)
    Tiny(config, builder)
    names = sorted(name for group in builder.groups for name in group.targets())
    assert names == sorted(
        [f"model.attn.{part}_proj.weight" for part in "qkvo"]
        + ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
    )
    assert shape(config).head_dim == 4 and found.project["name"] == "acme-core-tiny"


def test_the_io_processor_example_finds_the_nearest(example, tmp_path):
    example("io_processors")
    model = str(tiny_encoder(tmp_path / "bert"))
    with LLM(model, dtype="float32", threads=1, io_processor="nearest") as llm:
        answer = llm.encode({"data": {"text": "a worker", "choices": ["memory", "a worker"]}})[0].outputs
    assert answer["nearest"] == "a worker" and answer["scores"][1] == pytest.approx(1.0)


def test_the_chat_template_example_writes_the_prompt(example, tmp_path):
    example("chat_templates")
    model = str(tiny_llama(tmp_path / "llama"))
    named = {"chat_template_engine": "braces", "chat_template": "<|{role}|>{content}{mood}", **OPTIONS}
    with LLM(model, threads=1, **named) as llm:
        answer = llm.chat([{"role": "user", "content": "memory"}], GREEDY, mood="!")[0]
    assert answer.prompt == "<|user|>memory!<|assistant|>" and answer.outputs


def test_the_tool_server_example_asks_and_is_answered(example):
    example("tool_servers")
    from acme_core_desk.client import Desk

    async def answer(reader, writer):
        asked = json.loads(await reader.readline())
        tools = {"tools": [{"name": "ring", "about": "Rings.", "schema": {"type": "object"}}]}
        text = f"{asked.get('call')} {asked.get('arguments')} {asked['headers']}"
        writer.write(json.dumps(tools if "list" in asked else {"text": text, "failed": False}).encode() + b"\n")
        writer.close()

    async def go():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            session = await Desk({}).open(f"http://127.0.0.1:{port}/desk", {"x": "y"})
            assert [tool.name for tool in await session.list_tools()] == ["ring"]
            assert (await session.call_tool("ring", {"times": 2})).text == "ring {'times': 2} {'x': 'y'}"
            await session.close()
            with pytest.raises(api.ToolServerError):
                await session.list_tools()

    asyncio.run(go())
