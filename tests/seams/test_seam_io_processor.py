"""I/O processors: data in, prompts of any kind through the model, an answer out; offline and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os

import httpx
import numpy as np
import pytest
import torch
from core_plugin_pooling.manifest import POOLING
from core_plugin_pooling.routes import PoolingRoutes
from safetensors.torch import save_file

from core import LLM, AsyncLLM, PoolingParams
from core.api import CoreError, PluginError, RequestError
from core.config.resolved import Options
from core.selection.resolver import resolve
from core_testing.served import served_app
from core_testing.tinyencoders import tiny_encoder

DATA = {"text": "the engine reads", "choices": ["a worker", "the engine reads long prompts", "memory"]}
PICTURE = (np.arange(8 * 12).reshape(8, 12) % 7).tolist()


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return str(tiny_encoder(tmp_path_factory.mktemp("models") / "bert"))


@pytest.fixture(scope="module")
def patches(tmp_path_factory):
    """A model that reads pictures and has no tokenizer; its configuration names its processor."""
    folder = tmp_path_factory.mktemp("models") / "patches"
    folder.mkdir()
    config = {"architectures": ["SeamPatches"], "hidden_size": 6, "patch": 4, "io_processor_plugin": "picture"}
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(3)
    tensors = {"project.weight": torch.randn(6, 16, generator=random), "project.bias": torch.arange(6.0)}
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


@pytest.fixture
def rows(patches):
    """The model's answer to `PICTURE`, computed with numpy."""
    from safetensors.numpy import load_file

    state = load_file(os.path.join(patches, "model.safetensors"))
    picture = np.array(PICTURE, np.float32)
    cut = [picture[y : y + 4, x : x + 4].reshape(-1) for y in (0, 4) for x in (0, 4, 8)]
    return np.array(cut) @ state["project.weight"].T + state["project.bias"]


def ask(model, *bodies, **select):
    """POST each body to `/pooling` of a server; return the answers."""

    async def scenario():
        options = Options.model_validate(
            {"model": {"model": model, "dtype": "float32"}, "runtime": {"threads": 1}, "select": select}
        )
        resolution = await asyncio.to_thread(resolve, options)
        from core.engine.client import open_async

        llm = AsyncLLM(resolution, await open_async(resolution.config, in_process=True))
        try:
            transport = httpx.ASGITransport(served_app(llm, options, {POOLING: PoolingRoutes({})}, defaults={}))
            async with httpx.AsyncClient(transport=transport, base_url="http://core") as client:
                return await asyncio.gather(*(client.post("/pooling", json=body) for body in bodies))
        finally:
            await llm.close()

    return asyncio.run(scenario())


@pytest.mark.covers("POOL-03")
def test_data_is_answered_offline_as_over_http(plugins, bert):
    plugins("io_processor")
    with LLM(bert, dtype="float32", threads=1, io_processor="nearest") as llm:
        (one,) = llm.encode({"data": DATA}, PoolingParams(use_activation=False))
        many = llm.encode([{"data": DATA}, {"data": DATA | {"choices": ["x"]}}])
        plain = [output.outputs.array for output in llm.embed([DATA["text"], *DATA["choices"]])]
    from seam_io.processors import CALLS

    request, outputs = CALLS[:2]
    assert (request.data, request.params, request.task) == (DATA, {"use_activation": False}, None)
    # The processor sees its prompts as objects, whatever form it gave them in.
    assert [set(output.prompt) for output in outputs] == [
        {"prompt_token_ids"},
        {"prompt", "prompt_token_ids"},
        {"prompt", "prompt_token_ids"},
        {"prompt", "prompt_token_ids", "add_special_tokens"},
    ]
    assert outputs[2].prompt["prompt"] == DATA["choices"][1]
    assert len(outputs[3].prompt["prompt_token_ids"]) < len(outputs[1].prompt["prompt_token_ids"])
    np.testing.assert_allclose(one.outputs["scores"][:2], np.array(plain[1:3]) @ plain[0], atol=1e-5)
    assert (one.outputs["id"], len(many), many[1].outputs["scores"].shape) == (one.request_id, 2, (1,))
    assert one.prompt_token_ids == [token for output in outputs for token in output.prompt["prompt_token_ids"]]

    served, plain_input = ask(bert, {"data": DATA, "model": "bert"}, {"input": "a"}, io_processor="nearest")
    body = served.json()
    assert set(body) == {"request_id", "created_at", "data"} and body["data"]["id"] == body["request_id"]
    np.testing.assert_allclose(body["data"]["scores"], one.outputs["scores"], atol=1e-5)
    assert len(plain_input.json()["data"][0]["data"]) == 48


@pytest.mark.covers("POOL-03")
def test_a_model_without_text_reads_arrays(plugins, patches, rows):
    plugins("io_processor")
    with LLM(patches, dtype="float32", threads=1) as llm:  # the checkpoint names its processor
        np.testing.assert_allclose(llm.encode({"data": PICTURE})[0].outputs, rows, atol=1e-3)
        with pytest.raises(RequestError, match="no tokenizer"):
            llm.encode("a text")
    bodies = [{"data": PICTURE}, {"data": np.array(PICTURE)[:4].tolist()}, {"data": [[1, 2], [3, 4]]}]
    whole, upper, wrong = ask(patches, *bodies)  # pictures of two sizes in one step
    np.testing.assert_allclose(whole.json()["data"], rows, atol=1e-3)
    np.testing.assert_allclose(upper.json()["data"], rows[:3], atol=1e-3)
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "data")
    assert "whole patches" in wrong.json()["error"]["message"]


@pytest.mark.parametrize("executor", ["subprocess"])
def test_arrays_reach_a_worker_elsewhere(plugins, patches, rows, executor):
    plugins("io_processor")
    with LLM(patches, dtype="float32", threads=1, executor=executor) as llm:
        np.testing.assert_allclose(llm.encode({"data": PICTURE})[0].outputs, rows, atol=1e-3)


def test_whose_fault_it_is(plugins, bert):
    plugins("io_processor")
    cases = {
        "refuse": (418, "not_that"),
        "nothing": (400, None),
        "empty": (400, None),
        "outside": (400, None),
        "zero": (400, None),
        "task": (400, "task_not_supported"),
        **dict.fromkeys(("break", "late", "kind", "parameter", "text", "set"), (503, "CORE-P108")),
    }
    answers = ask(bert, *({"data": name} for name in cases), io_processor="faulty")
    found = {name: (one.status_code, one.json()["error"]["code"]) for name, one in zip(cases, answers, strict=True)}
    assert found == cases
    assert not any("secret" in one.text for one in answers)
    with LLM(bert, dtype="float32", threads=1, io_processor="faulty") as llm:
        assert llm.encode({"data": "fine"})[0].outputs is None
        with pytest.raises(PluginError, match=r"CORE-P108 I/O processor 'faulty' \(seam-io 1.0\): parse_request\(\)"):
            llm.encode({"data": "break"})


def test_coroutines_run_beside_a_loop_that_is_there(plugins, patches, rows):
    """As in a notebook: the offline calls work inside of an event loop."""
    plugins("io_processor")

    async def scenario():
        with LLM(patches, dtype="float32", threads=1) as llm:
            return llm.encode({"data": PICTURE})[0].outputs

    np.testing.assert_allclose(asyncio.run(scenario()), rows, atol=1e-3)


def test_where_there_is_none(plugins, bert, llama):
    plugins("io_processor")
    none, both = ask(bert, {"data": DATA}, {"data": DATA, "input": "a"})
    assert (none.status_code, none.json()["error"]["param"]) == (400, "data")
    assert "--io-processor" in none.json()["error"]["message"]
    assert (both.status_code, both.json()["error"]["param"]) == (400, "data")
    with LLM(bert, dtype="float32", threads=1) as llm, pytest.raises(RequestError, match="--io-processor"):
        llm.encode({"data": DATA})
    with pytest.raises(CoreError, match="the model generates; --runner pooling"):
        resolve(Options.model_validate({"model": {"model": llama}, "select": {"io_processor": "nearest"}}))
    with pytest.raises(CoreError, match="'nobody'"):
        resolve(Options.model_validate({"model": {"model": bert}, "select": {"io_processor": "nobody"}}))


def test_the_checkpoints_processor_can_be_left_out(plugins, patches):
    plugins("io_processor")
    options = {"model": {"model": patches}, "select": {"io_processor": "none"}}
    assert resolve(Options.model_validate(options)).config.plan.of("core.io_processors") == []
