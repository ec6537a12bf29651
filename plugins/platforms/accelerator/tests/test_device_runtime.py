"""The runtime over a device module that stands in: order, memory, uploads, graphs, faults."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_accelerator.faults import device_faults
from core_plugin_accelerator.graphs import CapturedGraphs, graph_class
from core_plugin_accelerator.memory import DeviceMemory
from core_plugin_accelerator.options import SIZES, TOKENS
from core_plugin_accelerator.queue import EventQueue
from core_plugin_accelerator.stand_in import FakeAccelerator
from core_plugin_accelerator.stream import DeviceStream
from core_plugin_accelerator.uploads import PinnedUploads

from core.api import StepShape
from core.api.errors import DEVICE_LOST, EngineError
from core_testing.fakedevice.module import FakeModule

CPU = torch.device("cpu")
GIB, MIB = 2**30, 2**20


@pytest.fixture
def module():
    return FakeModule()


@pytest.fixture
def opened():
    platform = FakeAccelerator()
    platform.open(threads=1, seed=0, index=0)
    yield platform
    platform.close()


# -- queue and stream --------------------------------------------------------------------------------------------------


def test_what_is_fetched_is_there_when_its_event_is_and_not_before(module):
    stream, queue = DeviceStream(module, CPU), EventQueue(module, CPU)

    def work():
        made = torch.arange(6, dtype=torch.int64) * 2
        fetched = queue.fetch([made, made.view(2, 3)])
        made.add_(100)
        return fetched, fetched._hosts[0].numpy().copy()

    fetched, early = stream.submit(work).result()
    flat, square = fetched.result()
    stream.close()
    assert early.tolist() != [0, 2, 4, 6, 8, 10] and flat.tolist() == [0, 2, 4, 6, 8, 10]
    assert square.tolist() == [[0, 2, 4], [6, 8, 10]] and isinstance(flat, np.ndarray)
    assert (module.events, module.synchronized, module.queue.waits) == (1, 0, 0)


def test_a_stream_works_on_the_devices_stream_and_refuses_when_closed(opened):
    stream = opened.stream()
    assert stream.submit(lambda: (opened._module.queue.late, torch.is_inference_mode_enabled())).result() == (
        True,
        True,
    )
    opened.close()
    with pytest.raises(EngineError, match="CORE-E125"):
        stream.submit(lambda: None)


def test_a_platform_refuses_an_index_that_torch_does_not_find():
    with pytest.raises(EngineError, match="finds 2 cpu devices; number 3 was asked for") as refused:
        FakeAccelerator().open(threads=None, seed=0, index=3)
    assert refused.value.code == "CORE-E139"


# -- memory ------------------------------------------------------------------------------------------------------------


def scripted(**values):
    module = FakeModule(total=16 * GIB)
    for name, value in values.items():
        setattr(module, name, value)
    return module


@pytest.mark.covers("PLAT-04")
def test_what_others_have_is_used_and_what_the_allocator_keeps_is_free():
    module = scripted(free=9 * GIB, reserved=4 * GIB, allocated=3 * GIB)
    memory = DeviceMemory(module, CPU).snapshot()
    assert (memory.total, memory.free, memory.peak) == (16 * GIB, 10 * GIB, 0)  # nobody counts before `mark`


@pytest.mark.covers("PLAT-04")
def test_the_peak_is_that_of_tensors_and_of_everything_else():
    module = scripted(free=9 * GIB, reserved=4 * GIB, allocated=3 * GIB)
    counted = DeviceMemory(module, CPU)
    counted.mark()
    module.peak = 5 * GIB
    assert counted.snapshot().peak == (16 - 9 - 4) * GIB + 5 * GIB


@pytest.mark.covers("PLAT-04")
def test_a_reserve_is_used_for_good():
    module = scripted(free=9 * GIB, reserved=4 * GIB, allocated=3 * GIB)
    plain, reserved = DeviceMemory(module, CPU), DeviceMemory(module, CPU, reserve=128 * MIB)
    plain.mark()
    reserved.mark()
    assert plain.snapshot().free - reserved.snapshot().free == 128 * MIB
    assert reserved.snapshot().peak - plain.snapshot().peak == 128 * MIB


def test_memory_is_given_back_to_the_driver(opened):
    opened._module.reserved = 5 * MIB
    opened.release_memory()
    assert (opened._module.emptied, opened._module.reserved) == (1, 0)


# -- uploads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 1000, 1 << 20])
def test_tensors_of_any_dtype_and_form_arrive_as_they_were(module, size):
    uploads = PinnedUploads(module, CPU, area_bytes=size)
    tensors = [
        torch.randn(17, 9),
        torch.randn(40, 30).to(torch.bfloat16),
        torch.randn(33).to(torch.float8_e4m3fn),
        torch.arange(20).view(4, 5).T,
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.tensor([True, False, True]),
    ]
    found = [uploads.upload(tensor) for tensor in tensors]
    uploads.close()
    for one, due in zip(found, tensors, strict=True):
        assert one.dtype == due.dtype and one.shape == due.shape
        assert torch.equal(
            one.contiguous().reshape(-1).view(torch.uint8), due.contiguous().reshape(-1).view(torch.uint8)
        )
    assert uploads.peak <= 2 * size


def test_threads_share_the_areas(module):
    uploads = PinnedUploads(module, CPU, area_bytes=256)
    tensors = [torch.full((300,), float(number)) for number in range(12)]
    found = [None] * 12

    def carry(numbers):
        for number in numbers:
            found[number] = uploads.upload(tensors[number])

    threads = [threading.Thread(target=carry, args=(range(start, 12, 3),)) for start in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    uploads.close()
    assert all(torch.equal(one, due) for one, due in zip(found, tensors, strict=True))
    assert uploads.peak <= 2 * 256


def test_an_area_is_written_again_behind_its_copy_alone(module):
    """With one area the second piece waits for the event of the first."""
    uploads = PinnedUploads(module, CPU, areas=1, area_bytes=8)
    uploads.upload(torch.arange(4, dtype=torch.int64))
    assert module.events == 3


def test_a_piece_that_fails_leaves_its_area_to_others(module, monkeypatch):
    uploads = PinnedUploads(module, CPU, areas=1, area_bytes=64)
    failing = SimpleNamespace(Event=lambda: pytest.fail("unused"), current_stream=module.current_stream)
    failing.Event = lambda: (_ for _ in ()).throw(RuntimeError("no event"))
    uploads._module = failing
    with pytest.raises(RuntimeError, match="no event"):
        uploads.upload(torch.ones(4))
    uploads._module = module
    assert torch.equal(uploads.upload(torch.ones(4)), torch.ones(4))


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize(
    ("rows", "widest", "sizes"),
    [
        ((1, 2, 4, 8), 16, [1, 2, 4, 8]),
        ((1, 2, 4, 8), 6, [1, 2, 4, 6]),
        ((8, 1, 8), 8, [1, 8]),
        ((4,), 1, [1]),
        (SIZES, 256, list(SIZES)),
    ],
)
def test_which_steps_are_captured(module, rows, widest, sizes):
    found = CapturedGraphs(module, CPU, rows).sizes(StepShape(widest, widest, 1, 512))
    assert [shape.num_rows for shape in found] == sizes
    assert {(shape.num_tokens - shape.num_rows, shape.max_query_len, shape.max_seq_len) for shape in found} == {
        (0, 1, 512)
    }


@pytest.mark.covers("COMP-03")
def test_which_steps_with_prompts_are_captured(module):
    graphs = CapturedGraphs(module, CPU, tokens=(64, 16, 512, 16))
    found = graphs.mixed_sizes(StepShape(256, 33, 256, 512))
    assert found == [StepShape(16, 16, 16, 512), StepShape(64, 33, 64, 512)]
    assert [one.num_tokens for one in CapturedGraphs(module, CPU).mixed_sizes(StepShape(999, 9, 999, 999))] == [*TOKENS]
    assert not CapturedGraphs(module, CPU, tokens=()).mixed_sizes(StepShape(256, 33, 256, 512))


def test_a_torch_without_graphs_for_a_device_has_none():
    assert graph_class(SimpleNamespace()) is None
    assert graph_class(SimpleNamespace(XPUGraph=int)) is int


def test_options_are_checked():
    with pytest.raises(ValueError, match="graph_sizes"):
        FakeAccelerator({"graph_sizes": []})
    with pytest.raises(ValueError, match="graph_tokens"):
        FakeAccelerator({"graph_tokens": [0]})


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_fault_of_the_device_is_told_from_memory_that_does_not_suffice():
    with pytest.raises(EngineError) as lost, device_faults():
        raise torch.AcceleratorError("unspecified launch failure\nCompile with ...")
    assert (lost.value.code, lost.value.message) == (DEVICE_LOST, "the device failed: unspecified launch failure.")
    for error in (torch.OutOfMemoryError("no"), RuntimeError("other")):
        with pytest.raises(type(error)), device_faults():
            raise error
