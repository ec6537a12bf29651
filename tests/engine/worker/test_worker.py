"""The worker's life: start, execute, named calls, close; with a fake platform and a fake model loader."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_pool.engine import Pool
from core_plugin_pool.worker import PoolWorker
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext
from core.api.errors import EngineError, PluginError
from core.api.platform import MemorySnapshot, Platform
from core.api.sampling_params import SamplingParams
from core.api.steps import BlockUpdate, NewRow, StepPlan
from core.api.weights import WeightManifest
from core.config.resolved import Options
from core.layers.guard import Owners
from core.layers.kernels import KernelTable
from core.layers.taps import Taps
from core.options.engine import KVOptions, SchedulerOptions
from core.plugins.drivers import guarded, guarded_items
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.worker import worker as worker_module
from core.worker.worker import Worker

VOCAB = 61
LOG = []


class FakePlatform(Platform):
    def open(self, *, threads, seed, index):
        LOG.append(("open", threads, seed))
        return torch.device("cpu")

    def memory(self):
        return MemorySnapshot(2**30, 2**28)

    def stream(self):
        return STREAM

    def describe(self):
        return {"device": "abacus"}

    def close(self):
        LOG.append(("close",))


STREAM = SimpleNamespace(submit=lambda work: work(), close=lambda: None)
FAKE = SimpleNamespace(name="fake", owner="'fake' (acme 1.0)", options={})
POOL = SimpleNamespace(name="pool", owner="'pool' (acme 1.0)", options={})
ENTRY = Entry("core.weight_transfer", "fake", "acme", "1.0", "")


class FakeConnector:
    def __init__(self, options):
        self.options = options

    def bind(self, caches):
        LOG.append(("bind", self.options, [tuple(cache.shape) for cache in caches]))
        FakeConnector.caches = caches

    def begin(self, message):
        LOG.append(("begin", message))

    def end(self):
        return b"report"

    def close(self):
        LOG.append(("close connector",))


class FakeReceiver:
    info = {"path": ""}  # noqa: RUF012 - replaced, never changed

    def __init__(self, options):
        self.options = options

    def begin(self, info):
        LOG.append(("weights", info))
        if info.get("path") == "away":
            raise OSError("the store is away")
        if "path" not in info:
            raise EngineError("CORE-E999", "no path")
        self.info = info
        return info["version"] if info["path"] == "wrong" else WeightManifest(version=info["version"], tensors={})

    def stream(self):
        yield "tensor"
        if self.info["path"] == "breaks":
            raise KeyError("tensor") from OSError("the link is down")

    def end(self):
        LOG.append(("end of update",))
        if self.info["path"] == "open":
            raise OSError("cannot close")


class FakePlugins:
    def __init__(self, groups):
        self._groups = groups
        self.hooks = Hooks()

    def new_of(self, group):
        return {"core.platforms": FakePlatform}[group]()

    def make(self, planned, *arguments):
        return Pool(*arguments) if planned is POOL else FakeReceiver(*arguments)

    def guard_items(self, planned, what, function):
        return guarded_items(ENTRY, what, function)

    def options(self, group):
        return {}

    def bind(self, *groups): ...

    def specs(self, group):
        return [(planned, spec) for planned, spec, _ in self.impls(group)]

    def impls(self, group):
        planned = SimpleNamespace(group=group, name="store", owner="'store' (acme 1.0)", options={"size": 3})
        spec = SimpleNamespace(worker_impl="store.worker:Worker")
        return [(planned, spec, object)] if group in self._groups else []

    def spec(self, group):
        return SimpleNamespace(kv_managers={}, worker_impl="pool.worker:PoolWorker")

    def planned(self, group):
        return POOL if group == "core.tasks" else FAKE

    def guard(self, planned, what, function, *arguments, **named):
        return guarded(ENTRY, what, function, *arguments, **named)

    def load(self, planned, path):
        return {"store.worker:Worker": FakeConnector, "pool.worker:PoolWorker": PoolWorker}[path]


@pytest.fixture
def make_worker(monkeypatch, make_bench):
    """`make_worker(groups=..., num_blocks=...)` -> a worker over the tiny model, not started."""
    LOG.clear()

    def load_model(config, active, device, progress, *, check, uploads):
        backend = TorchSdpaBackend(AttentionContext(device, torch.float32, torch.float32, config.block_size))
        model = type(make_bench().model)(backend)
        reload = lambda tensors: LOG.append(("reload", list(tensors)))  # noqa: E731
        loaded = SimpleNamespace(
            model=model,
            owners=Owners("model implementation 'tiny' (acme 1.0)"),
            attentions=model.attentions[::-1],
            backend=backend,
            reload=reload,
            prepare=lambda context: LOG.append(("context", context)),
            kernels=KernelTable("cpu", "float32"),
            num_parameters=7,
            weight_bytes=config.weight_bytes,
            mapped_bytes=config.mapped_bytes,
            keep=lambda: None,
            close=lambda: None,
            taps=Taps(),
            states=(),
        )
        check(loaded)
        progress(5, 10)
        return loaded

    monkeypatch.setattr(worker_module, "load_model", load_model)

    def make(
        *, groups=(), num_blocks=40, max_model_len=48, weight_bytes=0, mapped_bytes=0, shortens=False, task="generate"
    ):
        config = SimpleNamespace(
            weight_bytes=weight_bytes,
            mapped_bytes=mapped_bytes,
            shortens=shortens,
            shortened=lambda longest: SimpleNamespace(**{**vars(config), "max_model_len": longest}),
            options=Options(kv=KVOptions(num_blocks=num_blocks), scheduler=SchedulerOptions(max_num_seqs=4)),
            block_size=4,
            task_data={},
            device_index=0,
            step_tokens=2048,
            max_model_len=max_model_len,
            shape=SimpleNamespace(vocab_size=VOCAB),
            task=task,
            checkpoint=SimpleNamespace(num_bytes=2**29, architecture="Tiny"),
            plan=SimpleNamespace(one=lambda group: FAKE if group in groups else None),
        )
        return Worker(config, FakePlugins(groups), lambda done, total: LOG.append(("progress", done, total)))

    return make


def plan(row=0, prompt=(1, 2, 3, 4, 5), parts=None):
    return StepPlan(
        0,
        [NewRow(row, np.array(prompt, np.int32), SamplingParams(temperature=0.0), ())],
        (BlockUpdate(*(np.array(array, np.int32) for array in ([row], [0], [0, 2], [3, 9]))),),
        np.array([row], np.int32),
        np.array([0], np.int32),
        np.array([len(prompt)], np.int32),
        np.array([True]),
        np.array([0], np.int32),
        parts or {},
    )


def test_start_reports_what_the_engine_needs(make_worker):
    worker = make_worker(groups={"core.attention_backends"})
    info = worker.start()
    assert info.num_blocks == 40
    assert info.bytes_per_block == 2 * (2 * 4 * 2 * 8 * 4)
    assert [phase for phase, _ in info.timeline] == ["device", "weights", "kv cache", "warm-up", "participants"]
    assert all(seconds >= 0 for _, seconds in info.timeline)
    assert info.facts["device"] == "abacus" and info.facts["attention"] == "fake"
    assert info.facts["checkpoint"] == "0.50 GiB" and "40 blocks, 156 tokens" in info.facts["kv cache"]
    assert LOG == [("open", None, 0), ("progress", 5, 10), ("context", 48)]
    assert worker.stream() is STREAM


@pytest.mark.parametrize("task", ["generate", "pool"])
def test_a_model_without_logits_generates_nothing(make_worker, monkeypatch, task):
    worker = make_worker(groups={"core.models"}, task=task)
    planned = worker_module.load_model

    def load_model(*arguments, check, uploads):
        def checked(loaded):
            loaded.model = SimpleNamespace()
            check(loaded)
            raise LookupError("checked")

        planned(*arguments, check=checked, uploads=uploads)

    monkeypatch.setattr(worker_module, "load_model", load_model)
    with pytest.raises(PluginError if task == "generate" else LookupError) as failure:
        worker.start()
    if task == "generate":
        assert "CORE-P164 model implementation 'fake' (acme 1.0) has no logits(hidden)" in str(failure.value)
    assert ("progress", 5, 10) not in LOG, "no weight was read"


def test_a_platform_that_cannot_be_opened_is_named(make_worker, monkeypatch):
    def fail(self, **given):
        raise OSError("no card")

    monkeypatch.setattr(FakePlatform, "open", fail)
    with pytest.raises(PluginError, match=r"CORE-P108 .*'fake' \(acme 1.0\): open\(\) raised OSError: no card"):
        make_worker().start()


def test_the_warm_up_leaves_no_trace(make_worker, make_bench):
    bench = make_bench()
    bench.add(0, [1, 2, 3, 4, 5])
    worker = make_worker()
    worker.start()
    assert worker.execute(plan()).tokens.tolist() == bench.generate(0, 1)


@pytest.mark.parametrize("max_model_len", [1, 2, 3, 7])
def test_the_warm_up_fits_any_length(make_worker, max_model_len):
    make_worker(max_model_len=max_model_len, num_blocks=3).start()


@pytest.mark.covers("KV-01")
def test_connectors_are_bound_and_take_part(make_worker):
    worker = make_worker(groups={"core.kv_connectors"})
    worker.start()
    assert LOG[-1] == ("bind", {"size": 3}, [(40, 2, 4, 2, 8)] * 2)
    FakeConnector.caches[0][1] = 0.0  # from a thread of its own a connector writes outside of inference mode
    result = worker.execute(plan(parts={"store": b"load 3"}))
    assert LOG[-1] == ("begin", b"load 3")
    assert result.parts == {"store": b"report"}
    worker.close()
    worker.close()
    assert LOG[-3:] == [("close connector",), ("close",), ("close",)]


@pytest.mark.covers("WT-01")
def test_weights_are_updated_in_two_phases(make_worker):
    worker = make_worker(groups={"core.weight_transfer"})
    worker.start()
    LOG.clear()
    assert worker.call("weight_version") == "initial"
    assert worker.call("update_weights", {"path": "new", "version": "v2"}) == "v2"
    assert LOG == [("weights", {"path": "new", "version": "v2"}), ("reload", ["tensor"]), ("end of update",)]
    assert worker.call("weight_version") == "v2"


def test_a_failed_update_is_closed_and_keeps_the_version(make_worker):
    worker = make_worker(groups={"core.weight_transfer"})
    worker.start()
    with pytest.raises(EngineError, match="no path"):
        worker.call("update_weights", {})
    for path, told in (
        ("away", "begin() raised OSError: the store is away"),
        ("wrong", "begin() gave a str, not a WeightManifest"),
        ("breaks", "stream() raised KeyError: 'tensor', caused by OSError: the link is down"),
    ):
        with pytest.raises(PluginError, match=re.escape(f"CORE-P108 weight transfer 'fake' (acme 1.0): {told}")):
            worker.call("update_weights", {"path": path, "version": "v2"})
        assert LOG[-1] == ("end of update",)
        assert worker.call("weight_version") == "initial"


def test_an_update_whose_end_fails_is_an_update(make_worker, caplog):
    worker = make_worker(groups={"core.weight_transfer"})
    worker.start()
    assert worker.call("update_weights", {"path": "open", "version": "v2"}) == "v2"
    assert "CORE-P161 weight transfer 'fake' (acme 1.0): end() raised OSError: cannot close" in caplog.text
    assert worker.call("weight_version") == "v2"


@pytest.mark.covers("ENG-07")
def test_only_named_methods_can_be_called(make_worker):
    worker = make_worker()
    worker.start()
    assert worker.call("memory") == {"total": 2**30, "free": 2**28, "kv": 40 * 1024}
    with pytest.raises(EngineError, match=r"CORE-E124.*memory, profile, update_weights, weight_version"):
        worker.call("_allocate")
    with pytest.raises(EngineError, match="CORE-E123"):
        worker.call("update_weights", {})


FITTING_WEIGHTS = 2**28 - 2 * 13 * 1024
"""Beside them half of the free memory is 13 blocks of 1 KiB: 12 for the 48 tokens of a request, and the null block."""


@pytest.mark.covers("PLAT-04")
def test_what_fits_beside_the_weights_to_the_byte_is_loaded(make_worker):
    worker = make_worker(num_blocks=None, weight_bytes=FITTING_WEIGHTS)
    assert worker.start().max_model_len == 48
    assert ("progress", 5, 10) in LOG


@pytest.mark.covers("PLAT-04")
@pytest.mark.parametrize("how", [{"num_blocks": None, "weight_bytes": FITTING_WEIGHTS + 1}, {"num_blocks": 12}])
def test_too_little_memory_is_told_before_a_weight_is_read(make_worker, how):
    worker = make_worker(**how)
    with pytest.raises(EngineError, match=r"CORE-E120.*12 blocks.*48 tokens needs .* \(13 blocks\)") as failure:
        worker.start()
    assert LOG == [("open", None, 0)]
    assert ("the weights will take 0.25 GiB" in str(failure.value)) == ("weight_bytes" in how)


@pytest.mark.covers("PLAT-04")
def test_memory_in_which_files_show_weights_is_not_free(make_worker):
    """The system counts its pages as free, and they are read at every step."""
    assert make_worker(num_blocks=None, mapped_bytes=FITTING_WEIGHTS).start().max_model_len == 48
    with pytest.raises(EngineError, match=r"CORE-E120.*12 blocks"):
        make_worker(num_blocks=None, mapped_bytes=FITTING_WEIGHTS + 1).start()


def test_the_context_is_lowered_where_that_is_left_to_core(make_worker, caplog):
    worker = make_worker(num_blocks=10, shortens=True)
    info = worker.start()
    assert (info.num_blocks, info.max_model_len) == (10, 36)
    (record,) = caplog.records
    told = record.getMessage()
    assert "CORE-C210 the context is 36 tokens instead of 48" in told
    assert all(flag in told for flag in ("--kv-memory", "--memory-fraction", "--num-blocks", "--max-model-len"))
    assert worker.execute(plan()).tokens.tolist() != []


def test_a_context_that_fits_is_left_alone(make_worker, caplog):
    assert make_worker(num_blocks=13, shortens=True).start().max_model_len == 48
    assert caplog.records == []


def test_a_worker_that_did_not_start_can_be_closed(make_worker):
    worker = make_worker(num_blocks=4)
    with pytest.raises(EngineError, match="CORE-E120"):
        worker.start()
    worker.close()
    assert LOG[-1] == ("close",)
