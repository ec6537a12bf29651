"""Weights on their way to a device: in order, a few ahead, and never mixed with what is left on the host."""

from __future__ import annotations

import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from core.config.resolved import Options
from core.plugins.active import enter
from core.selection.resolver import resolve
from core.worker.loader import load_model
from core.worker.loading.uploaded import AHEAD, uploaded
from core_testing.tinymodels import tiny_model

MODELS = Path(__file__).parents[3] / "plugins" / "models"
ROWS = {"mixtral": "mixtral", "qwen3_5": "qwen_next", "mamba": "mamba", "recurrent_gemma": "gemma", "bloom": "bloom"}
TINY = ("llama", "llama_bias", "qwen3", "gemma2", "gemma3")


class Stored:
    """A tensor of a checkpoint."""

    def __init__(self, name, encoding="plain"):
        self.name, self.shape, self.encoding, self.released = name, (2, 3), encoding, 0

    def raw(self):
        return torch.full(self.shape, float(self.name))

    def dense(self, dtype):
        return self.raw().to(dtype)

    def release(self):
        self.released += 1


class Counting:
    """Uploads that count what is under way."""

    def __init__(self, failing=None):
        self.begun, self.closed, self.failing, self.lock = [], 0, failing, threading.Lock()

    def upload(self, tensor):
        with self.lock:
            self.begun.append(int(tensor[0, 0]))
        if self.failing == int(tensor[0, 0]):
            raise OSError("the file ends here")
        return tensor.clone()

    def close(self):
        self.closed += 1


def test_tensors_come_in_their_order_and_a_few_are_read_ahead():
    stored, uploads, taken = [Stored(str(number)) for number in range(12)], Counting(), []
    for tensor in uploaded(stored, uploads):
        taken.append(tensor.name)
        assert torch.equal(tensor.dense(torch.float64), torch.full((2, 3), float(tensor.name), dtype=torch.float64))
        assert len(uploads.begun) <= len(taken) + AHEAD
        tensor.release()
        with pytest.raises(ValueError, match="was released"):
            tensor.raw()
    assert taken == [one.name for one in stored] and sorted(uploads.begun) == list(range(12))
    assert [one.released for one in stored] == [1] * 12 and uploads.closed == 1


def test_what_is_encoded_stays_as_it_is():
    stored, uploads = [Stored("0"), Stored("1", "gguf:Q4_1"), Stored("2")], Counting()
    found = list(uploaded(stored, uploads))
    assert found[1] is stored[1] and [one.name for one in found] == ["0", "1", "2"]
    assert found[0].raw() is not None and sorted(uploads.begun) == [0, 2]


def test_a_tensor_that_cannot_be_read_fails_where_it_is_taken():
    uploads = Counting(failing=1)
    found = uploaded([Stored("0"), Stored("1"), Stored("2")], uploads)
    assert next(found).raw() is not None
    with pytest.raises(OSError, match="the file ends here"):
        next(found).raw()
    found.close()
    assert uploads.closed == 1


def test_who_stops_reading_ends_the_uploads():
    uploads = Counting()
    found = uploaded((Stored(str(number)) for number in range(100)), uploads)
    next(found)
    found.close()
    assert uploads.closed == 1 and len(uploads.begun) <= 2 + AHEAD


class ToMeta:
    """Uploads to torch's device `meta`, on which every mixture with tensors of the host is an error."""

    def upload(self, tensor):
        return tensor.to("meta")

    def close(self): ...


@pytest.fixture
def model(request, tmp_path):
    """A tiny checkpoint of plain weights."""
    if request.param in TINY:
        return str(tiny_model(tmp_path / request.param, request.param))
    spec = spec_from_file_location("rows_of_a_family", MODELS / ROWS[request.param] / "tests" / "rows.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    row = next(row for row in module.ROWS if row.name == request.param)
    return str(row.write(tmp_path / row.name))


@pytest.mark.parametrize("model", [*TINY, *ROWS], indirect=True)
def test_a_model_is_filled_from_the_device_alone(model):
    asked = {"platform": "cpu", "attention_backend": "torch_sdpa"}
    config = resolve(Options.model_validate({"model": {"model": model, "dtype": "float32"}, "select": asked})).config
    meta = torch.device("meta")
    loaded = load_model(config, enter(config.plan), meta, lambda done, total: None, uploads=ToMeta)
    assert loaded.num_parameters > 1000
