"""The participant `routed_experts`: experts of tokens, returned and counted, are those of the reference's routers."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from contextlib import closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import httpx
import numpy as np
import pytest
from core_plugin_openai.manifest import OPENAI
from core_plugin_openai.routes import OpenAIRoutes

from core import LLM, SamplingParams
from core.api.errors import PluginError, RequestError
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.frontend.async_llm import AsyncLLM
from core.options.engine import RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import logits_of
from core_testing.served import served_app
from core_testing.tinymodels import tiny_llama

ROWS = Path(__file__).parents[2] / "plugins" / "models" / "mixtral" / "tests" / "rows.py"
NAME = "routed_experts"
RNG = np.random.default_rng(3)
SHARED = RNG.integers(3, 300, 33).tolist()
PROMPTS = [[*SHARED, 8, 9], RNG.integers(3, 300, 20).tolist(), [*SHARED, 11], SHARED[:18]]
NEW = 9
WANTED = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True, extra_args={"return_routed_experts": True})
PLAIN = WANTED.replace(extra_args=None)
SETTINGS = {"dtype": "float32", "threads": 1, "max_model_len": 64, "participant": [NAME]}


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory):
    spec = spec_from_file_location("rows_of_mixtral", ROWS)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    row = module.ROWS[0]
    model = row.model(**row.native)
    return model, str(row.write(tmp_path_factory.mktemp("routed") / "mixtral", model))


def due(model, tokens):
    """Return the reference's ids, `(tokens, layers, k)`, sorted: which of two near ones is the first may differ."""
    found = []
    routers = [module for module in model.modules() if type(module).__name__.endswith("TopKRouter")]
    hooks = [one.register_forward_hook(lambda _, __, out: found.append(out[2].flatten(0, -2))) for one in routers]
    logits_of(model, tokens)
    for hook in hooks:
        hook.remove()
    return np.sort(np.stack([one.numpy() for one in found], axis=1), axis=-1)


def check(model, prompt, output, start=0):
    found = output.parts[NAME]
    tokens = [*prompt, *output.token_ids]
    assert found.dtype == np.uint8 and found.shape[0] == len(tokens) - 1 - start
    np.testing.assert_array_equal(np.sort(found, axis=-1), due(model, tokens[:-1])[start:])


@pytest.mark.covers("MOE-12")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_chunk": 7, "overlap_depth": 2},
        {"overlap_depth": 0, "enable_prefix_caching": False},
        {"drafter": "ngram", "draft_tokens": 3},
        {"attention_backend": "torch_sdpa"},
        {"num_blocks": 7, "block_size": 16},
    ],
    ids=["whole", "chunks", "no prefixes", "drafts", "torch", "preempted"],
)
def test_ids_are_those_of_the_reference(mixtral, settings):
    model, path = mixtral
    with LLM(path, **{**SETTINGS, **settings}) as llm:
        for _ in range(2):  # the second time with what the first one left in the prefix cache
            for prompt, output in zip(PROMPTS, llm.generate(PROMPTS, WANTED), strict=True):
                check(model, prompt, output.outputs[0])


def test_the_decode_step_stays_a_program_without_torch(mixtral):
    _, path = mixtral
    calls = []
    for participants in ([NAME], []):
        options = Options(
            model=ModelOptions(model=path, dtype="float32", max_model_len=64),
            runtime=RuntimeOptions(threads=1),
            select=SelectOptions(participant=participants),
        )
        with closing(open_sync(resolve(options).config)) as engine:
            program = engine.ready.facts["program"]
            assert re.fullmatch(r"\d+ calls", program), program
            calls.append(int(program.split()[0]))
    assert calls[0] == calls[1] + 3  # a copy in each layer


@pytest.mark.covers("MOE-12")
def test_who_asks_gets_them_and_from_where_it_asks(mixtral):
    model, path = mixtral
    prompt = PROMPTS[1]
    from_there = WANTED.replace(extra_args={"return_routed_experts": True, "routed_experts_prompt_start": 15})
    with LLM(path, **SETTINGS) as llm:
        plain, later, twice = llm.generate(
            [prompt] * 3, [PLAIN, from_there, WANTED.replace(n=2, temperature=1.0, seed=4)]
        )
        assert plain.outputs[0].parts == {}
        check(model, prompt, later.outputs[0], start=15)
        for output in twice.outputs:
            check(model, prompt, output)
        for start in (-1, 21, "2", True):
            wrong = WANTED.replace(extra_args={"return_routed_experts": True, "routed_experts_prompt_start": start})
            with pytest.raises(RequestError, match="a token of the prompt, 0 to 20"):
                llm.generate([prompt], wrong)
        with pytest.raises(RequestError, match="true or false"):
            llm.generate([prompt], WANTED.replace(extra_args={"return_routed_experts": 1}))
    with LLM(path, **SETTINGS, plugin_options={NAME: {"always": True}}) as llm:
        always, refused = llm.generate(
            [prompt] * 2, [PLAIN, PLAIN.replace(extra_args={"return_routed_experts": False})]
        )
        check(model, prompt, always.outputs[0])
        assert refused.outputs[0].parts == {}


@pytest.mark.covers("MOE-12")
def test_the_load_of_each_expert_is_counted(mixtral):
    model, path = mixtral
    with LLM(path, **SETTINGS, enable_prefix_caching=False) as llm:
        outputs = llm.generate(PROMPTS, PLAIN)
        # A step that was under way when the last request ended computed tokens that nobody got.
        stats = llm.call("participant_stats")[NAME]
    experts = model.config.num_local_experts
    ids = np.concatenate([due(model, [*one.prompt_ids, *one.outputs[0].token_ids][:-1]) for one in outputs])
    assert list(stats) == [f"load.model.layers.{layer}.block_sparse_moe.experts" for layer in range(ids.shape[1])]
    for layer, counts in enumerate(stats.values()):
        least = np.bincount(ids[:, layer].ravel(), minlength=experts)
        assert len(counts) == experts and (np.array(counts) >= least).all()
        assert sum(counts) - least.sum() <= ids.shape[2] * len(PROMPTS) * 2
    with LLM(path, **SETTINGS, plugin_options={NAME: {"load": False}}) as llm:
        llm.generate(PROMPTS, PLAIN)
        assert llm.call("participant_stats")[NAME] == {}


def test_a_model_without_experts_is_refused(tmp_path):
    path = str(tiny_llama(tmp_path / "llama"))
    with pytest.raises(PluginError, match=r"CORE-P250 .*'routed_experts'.* reads 'experts'.*no layer of .*llama"):
        LLM(path, **SETTINGS)


@pytest.fixture(scope="module")
def post(mixtral):
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    with asyncio.Runner() as runner:
        llm = runner.run(AsyncLLM.start(mixtral[1], chat_template=template, **SETTINGS))  # an engine of its own process
        app, fixed = (
            served_app(llm, Options(), {OPENAI: OpenAIRoutes({})}),
            {"max_tokens": NEW, "temperature": 0, "ignore_eos": True},
        )

        def send(path, body):
            async def go():
                transport = httpx.ASGITransport(app)
                async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                    return await client.post(path, json={**fixed, **body})

            return runner.run(go())

        yield send
        runner.run(llm.close())


def loaded(text):
    return np.load(io.BytesIO(base64.b64decode(text)))


@pytest.mark.covers("MOE-12")
@pytest.mark.parametrize("kind", ["completions", "chat"])
def test_choices_have_them_whole_and_streamed(mixtral, post, kind):
    model, _ = mixtral
    chat = kind == "chat"
    path = "/v1/chat/completions" if chat else "/v1/completions"
    asked = {"messages": [{"role": "user", "content": "Who goes there?"}]} if chat else {"prompt": PROMPTS[0]}
    asked |= {"return_routed_experts": True, "return_token_ids": True}
    whole = post(path, asked).json()
    (choice,) = whole["choices"]
    prompt = (whole if chat else choice)["prompt_token_ids"]
    ids = loaded(choice[NAME])
    np.testing.assert_array_equal(np.sort(ids, axis=-1), due(model, [*prompt, *choice["token_ids"]][:-1]))
    part = post(path, {**asked, "routed_experts_prompt_start": 5}).json()["choices"][0]
    np.testing.assert_array_equal(loaded(part[NAME]), ids[5:])
    assert (
        NAME
        not in post(path, {**asked, "return_routed_experts": None, "routed_experts_prompt_start": 0}).json()["choices"][
            0
        ]
    )
    events = post(path, {**asked, "stream": True}).text
    members = re.findall(rf'"{NAME}":"([^"]+)"', events)
    assert len(members) == 1
    np.testing.assert_array_equal(loaded(members[0]), ids)
    refused = post(path, {**asked, "routed_experts_prompt_start": 10_000})
    assert refused.status_code == 400 and "routed_experts_prompt_start" in refused.json()["error"]["message"]
