"""Accelerators by the code that runs them, over a device module that stands in: tokens, what waits, memory, weights."""

from __future__ import annotations

import pytest
import torch
from core_plugin_accelerator.uploads import PinnedUploads

from core import LLM, SamplingParams
from core.api.errors import DEVICE_LOST, CoreError
from core.worker.runner import StepRunner

ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 6,
    "max_num_batched_tokens": 40,
    "max_model_len": 96,
    "block_size": 16,
    "num_blocks": 64,
}
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
DRAWN = SamplingParams(temperature=1.0, seed=7, max_tokens=12, ignore_eos=True)


def platform_of(llm):
    return llm._engine._core.loop.executor._worker._platform


@pytest.fixture
def serve(plugins, llama):
    """`serve(**options)` starts the model on the stand-in."""
    plugins("fake_accelerator")

    def start(**options):
        return LLM(llama, **{**ENGINE, "platform": "accelerator", **options})

    return start


@pytest.fixture
def prompts(prompt):
    return [prompt(9), prompt(4, 1), prompt(50, 2)]


@pytest.fixture
def due(llama, prompts):
    """What the host processor answers."""
    with LLM(llama, **ENGINE, platform="cpu") as llm:
        found = llm.generate(prompts, [GREEDY, DRAWN, GREEDY])
        return [one.outputs[0].token_ids for one in found]


@pytest.mark.covers("PLAT-09", "COMP-03")
@pytest.mark.parametrize(("graphs", "captured"), [("none", 0), ("decode", 4), ("full", 6)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_tokens_are_those_of_the_host_processor(serve, prompts, due, depth, graphs, captured):
    with serve(overlap_depth=depth, graphs=graphs) as llm:
        found = [one.outputs[0].token_ids for one in llm.generate(prompts, [GREEDY, DRAWN, GREEDY])]
        module, steps = platform_of(llm)._module, llm.call("stats")["steps"]
    assert found == due
    assert module.captured == captured and (module.replayed > 0) == (graphs != "none")
    # The first step has 40 tokens, and 32 are the most that a graph with prompts holds; none else is without.
    assert graphs != "full" or module.replayed == steps - 1


@pytest.mark.covers("PLAT-09")
@pytest.mark.parametrize("depth", [0, 2])
def test_a_step_waits_for_the_event_of_its_result_and_for_nothing_else(serve, prompts, depth):
    """No `synchronize`, no `item`, `cpu` or `tolist`; an event for each result, and those of the staging areas."""
    with serve(overlap_depth=depth) as llm:
        platform = platform_of(llm)
        module = platform._module
        module.synchronized = module.events = module.queue.waits = 0
        before = llm.call("stats")["steps"]
        llm.generate(prompts, GREEDY)
        steps = llm.call("stats")["steps"] - before
        assert (module.synchronized, module.queue.waits) == (0, 0)
        # A staging area is written again behind its fence: one more event a step, at most.
        assert steps <= module.events <= 2 * steps


@pytest.mark.covers("COMP-03")
def test_graphs_are_captured_largest_first_in_one_pool(serve):
    with serve(plugin_options={"accelerator": {"graph_sizes": [1, 2, 4, 8]}}) as llm:
        facts, platform = llm._engine.ready.facts, platform_of(llm)
        steps = llm._engine._core.loop.executor._worker._graphed._steps
    graphs = {shape.num_rows: one.graph._graph for shape, one in steps.items()}
    assert facts["graphs"] == "decode: 4 captured, of up to 6 rows" and list(graphs) == [1, 2, 4, 6]
    assert len({graph.pool for graph in graphs.values()}) == 1 and platform._module.captured == 4


@pytest.mark.covers("PLAT-04")
def test_the_cache_is_what_a_fraction_of_all_memory_leaves_beside_weights_and_a_step(serve, monkeypatch):
    """A quarter of the device's memory was in use at once; the start table has both numbers."""
    total = 2**20
    monkeypatch.setattr("core_testing.fakedevice.module.FakeModule.__init__.__defaults__", (1, total))
    with serve(num_blocks=None, memory_fraction=0.5) as llm:
        facts, worker = llm._engine.ready.facts, llm._engine._core.loop.executor._worker
    assert worker._budget.num_blocks == (total // 2 - total // 4) // worker._budget.bytes_per_block
    assert "memory_fraction 0.5 of 0.00 GiB is 0.00 GiB, of which weights and a step take 0.00 GiB" in facts["kv cache"]
    assert facts["memory"] == "0.00 GiB, 0.00 free"


@pytest.mark.covers("PLAT-04")
def test_the_fraction_is_the_platforms_where_the_user_set_none(serve):
    with serve() as llm:
        kv = llm._engine._core.loop.executor._worker._config.options.kv
    assert kv.memory_fraction == 0.9


def test_a_device_is_chosen_by_its_index(serve):
    with serve(platform="accelerator:1") as llm:
        config = llm._engine._core.loop.executor._worker._config
        assert (config.device_index, config.probe.facts["index"]) == (1, 1)
        assert platform_of(llm)._module.current_device() == 1


def test_an_index_that_no_device_has_is_refused_with_those_there_are(serve):
    with pytest.raises(CoreError, match="device 2 was asked for, and it finds 2 devices, 0 to 1") as refused:
        serve(platform="accelerator:2")
    assert refused.value.code == "CORE-P201"


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch):
    """What the next forward pass raises; nothing while it is empty."""
    errors, plain = [], StepRunner._plain

    def forward(self, inputs):
        if errors:
            raise errors.pop()
        return plain(self, inputs)

    monkeypatch.setattr(StepRunner, "_plain", forward)
    return errors


EAGER = {"graphs": "none"}


@pytest.mark.covers("PLAT-04")
def test_a_step_that_runs_out_of_memory_ends_its_requests_by_name_and_no_others(serve, prompt, failing):
    with serve(**EAGER) as llm:
        before = llm.generate([prompt(9)], GREEDY)[0].outputs[0]
        module = platform_of(llm)._module
        failing.append(torch.OutOfMemoryError("out of memory. Tried to allocate 2.00 GiB.\nmore"))
        failed = llm.generate([prompt(9, 3)], GREEDY)[0].outputs[0]
        after = llm.generate([prompt(9)], GREEDY)[0].outputs[0]
    assert failed.finish_reason == "error" and not failed.token_ids
    assert failed.error.startswith(
        "CORE-E128 memory ran out in a step of 9 tokens for 1 requests (out of memory. Tried"
    )
    assert "1.00 GiB of 1.00 GiB is free now" in failed.error
    assert after.token_ids == before.token_ids and module.emptied == 1


def test_a_device_that_failed_ends_the_engine(serve, prompt, failing):
    with serve(**EAGER) as llm:
        failing.append(torch.AcceleratorError("an illegal memory access was encountered\nmore"))
        with pytest.raises(CoreError, match="the device failed: an illegal memory access") as lost:
            llm.generate([prompt(9)], GREEDY)
    assert lost.value.code == DEVICE_LOST


# -- weights -----------------------------------------------------------------------------------------------------------


def test_weights_go_through_two_areas_that_together_are_no_larger_than_two_tensors(serve, prompts, due, monkeypatch):
    made, plain = [], PinnedUploads.__init__

    def remembered(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        made.append(self)

    sizes, upload = [], PinnedUploads.upload
    monkeypatch.setattr(PinnedUploads, "__init__", remembered)
    monkeypatch.setattr(PinnedUploads, "upload", lambda self, one: sizes.append(one.nbytes) or upload(self, one))
    with serve() as llm:
        found = [one.outputs[0].token_ids for one in llm.generate(prompts, [GREEDY, DRAWN, GREEDY])]
    (uploads,) = made
    assert found == due
    assert len(sizes) > 20 and 0 < uploads.peak <= 2 * max(sizes)


def test_weights_that_are_rounded_while_they_load_are_packed_on_the_host(serve, prompt, monkeypatch):
    monkeypatch.setattr(PinnedUploads, "__init__", lambda *_: pytest.fail("nothing of it goes up as it is stored"))
    with serve(quantization="int8") as llm:
        assert len(llm.generate([prompt(9)], GREEDY)[0].outputs[0].token_ids) == 12
