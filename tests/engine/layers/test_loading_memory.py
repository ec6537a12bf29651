"""What is held while weights stream in, counted."""

from __future__ import annotations

import itertools

import pytest
import torch
from core_plugin_huggingface.reader import SafetensorsReader

from core.api import Product
from core.layers.params import ParamFilling
from core.layers.weights import WeightFilling, WeightGroup
from core.worker.loading import fill
from core.worker.loading.fill import WeightFiller


class Counted:
    """A tensor that counts how often it was read and given back."""

    def __init__(self, tensor, counts):
        self._tensor, self._counts = tensor, counts
        self.name, self.shape, self.encoding = tensor.name, tensor.shape, tensor.encoding

    def _count(self, what):
        self._counts.setdefault(self.name, []).append(what)

    def dense(self, dtype):
        self._count("read")
        return self._tensor.dense(dtype)

    def raw(self):
        self._count("read")
        return self._tensor.raw()

    def release(self):
        self._count("released")
        self._tensor.release()


def _counted(directory, counts):
    return (Counted(tensor, counts) for tensor in SafetensorsReader().tensors(directory, lambda count: None))


@pytest.mark.covers("MODEL-02")
def test_every_tensor_is_read_once_and_then_given_back(checkpoint, load):
    directory = checkpoint("llama")
    loaded, counts = load(directory), {}
    loaded.reload(_counted(directory, counts))
    assert counts
    assert all(calls == ["read", "released"] for calls in counts.values())


@pytest.mark.covers("MODEL-02")
def test_a_layer_gets_its_final_form_while_others_are_still_to_be_read(checkpoint, load, monkeypatch):
    directory = checkpoint("llama")
    loaded = load(directory)
    fill = WeightFiller._read
    open_now, most, open_at_end = set(), [], []

    take, finish = WeightFilling.take, Product.finish

    def taken(filling, *arguments):
        open_now.add(filling._group.product)
        most.append(len(open_now))
        return take(filling, *arguments)

    def finished(product, params):
        open_now.discard(product)
        return finish(product, params)

    def read(filler, tensors, fillings):
        count = fill(filler, tensors, fillings)
        open_at_end.append(len(open_now))
        return count

    monkeypatch.setattr(WeightFilling, "take", taken)
    monkeypatch.setattr(Product, "finish", finished)
    monkeypatch.setattr(WeightFiller, "_read", read)
    names = [tensor.name for tensor in SafetensorsReader().tensors(directory, lambda count: None)]
    groups = [group for group in loaded._filler._groups if isinstance(group, WeightGroup)]
    # Layer by layer, as checkpoints are usually written.
    ordered = sorted(_counted(directory, {}), key=lambda tensor: tensor.name)
    assert len(names) > len(groups) > 12
    loaded.reload(iter(ordered))
    assert open_at_end == [0]
    assert len(most) == sum(len(group.site.parts) for group in groups)
    assert max(most) <= 4  # qkv and gate-up wait for their parts, nothing else does


def test_what_a_failed_reload_read_is_not_used(checkpoint, load, runner):
    loaded = load(checkpoint("llama"))
    before = runner(loaded).run([5, 6, 7])
    every = sorted(_counted(checkpoint("llama", seed=1), {}), key=lambda tensor: tensor.name)
    with pytest.raises(ValueError, match="no more"):
        loaded.reload(_breaking(every[:-1]))
    torch.testing.assert_close(runner(loaded).run([5, 6, 7]), before, rtol=0, atol=0)


def _breaking(tensors):
    yield from tensors
    raise ValueError("no more")


@pytest.mark.covers("MODEL-02")
def test_the_allocator_gives_back_what_it_keeps_while_weights_are_read(checkpoint, load, monkeypatch):
    directory = checkpoint("llama")
    loaded, given_back, sizes = load(directory), [], {}
    monkeypatch.setattr(fill, "TRIM_BYTES", 10_000)
    monkeypatch.setattr(fill, "trim", lambda: given_back.append(sum(sizes.values())))

    def counted(kind):
        take = kind.take

        def taken(filling, key, tensor):
            sizes[tensor.name] = copied = take(filling, key, tensor)
            return copied

        monkeypatch.setattr(kind, "take", taken)

    counted(WeightFilling)
    counted(ParamFilling)
    loaded.reload(SafetensorsReader().tensors(directory, lambda count: None))
    assert len(given_back) > 2
    steps = [after - before for before, after in itertools.pairwise([0, *given_back, sum(sizes.values())])]
    assert all(10_000 <= step <= 10_000 + max(sizes.values()) for step in steps[:-1]) and steps[-1] < 10_000
