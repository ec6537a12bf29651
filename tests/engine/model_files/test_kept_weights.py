"""A second start has the packed weights of the first: the same tokens, nothing packed, nothing held twice."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import gguf
import pytest
import torch
from core_plugin_cpu.native import library
from core_plugin_llama.model import CausalLM
from safetensors.torch import load_file, save_file

from core import LLM, SamplingParams
from core.api import AttentionContext, QuantContext
from core.layers import weights
from core.layers.builder import Builder
from core.worker.loading import identity, kept
from core_testing.conformance.tools.plain import PlainAttention, PlainWeights
from core_testing.ranks import run_ranks
from core_testing.tinymodels import reference_model, tiny_llama

sys.path.insert(0, str(Path(__file__).parent))
from checkpoints import write_blocks
from quantized import FORMS, ROUNDED, plain, quantized
from test_formats_on_models import MIXTURE

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=3)
PROMPT = {"prompt_token_ids": [3 + (i * 29) % 90 for i in range(21)]}
BLOCKS = {"q4_0": gguf.GGMLQuantizationType.Q4_0, "q4_k": gguf.GGMLQuantizationType.Q4_K}
QUICK = ("plain", "experts", "int8", "q4_0", "q4_k", "awq", "gptq sym", "mxfp4", "fp8 in blocks")
EVERY = dict.fromkeys((*QUICK, *ROUNDED, *FORMS))

pytestmark = pytest.mark.skipif(not library.available(), reason="core's torch forms pack nothing but plain rows")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(kept, "DELAY_SECONDS", 0.0)


@pytest.fixture
def packed(monkeypatch):
    """The modules that are packed, in order."""
    modules, pack = [], weights.WeightFilling._pack

    def counted(filling, index):
        modules.append(filling._group.prefix)
        return pack(filling, index)

    monkeypatch.setattr(weights.WeightFilling, "_pack", counted)
    return modules


def made(name, folder):
    """A model of a form, and how it is asked for."""
    if name in BLOCKS:
        return write_blocks(folder, BLOCKS[name]), {}
    if name == "experts":
        return MIXTURE.write(folder), {}
    if name in FORMS:
        return quantized(name, folder), {"plugin_options": FORMS[name].options}
    return plain(folder), {"quantization": name} if name in ROUNDED else {}


def opened(model, store=None, **options):
    own = dict(options.pop("plugin_options", {}))
    if store is not None:
        options["weight_store"] = "mapped"
        own["mapped"] = {"folder": str(store), "max_bytes": 2**30}
    fixed = {"num_blocks": 20, "block_size": 16, "threads": 1}
    return LLM(str(model), plugin_options=own, **{"dtype": "float32", **fixed, **options})


def said(llm):
    """Tokens with their log-probabilities, to the last bit."""
    output = llm.generate([PROMPT], GREEDY)[0].outputs[0]
    return list(output.token_ids), [{key: one.logprob for key, one in step.items()} for step in output.logprobs]


def start(model, store=None, **options):
    with opened(model, store, **options) as llm:
        return said(llm)


def kept_in(store):
    return sorted(path.name for path in store.glob("*"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive) for name in EVERY]
)
def test_the_second_start_packs_nothing_and_says_the_same(tmp_path, packed, name, dtype):
    model, options = made(name, tmp_path / "model")
    due = start(model, dtype=dtype, **options)
    whole, store = list(packed), tmp_path / "store"
    assert start(model, store, dtype=dtype, **options) == due
    assert packed == whole * 2 and len(kept_in(store)) == 1
    assert start(model, store, dtype=dtype, **options) == due
    assert packed == whole * 2


def test_a_changed_checkpoint_is_packed_anew(tmp_path, packed):
    model, store = plain(tmp_path / "model"), tmp_path / "store"
    first = start(model, store)
    file, before = model / "model.safetensors", os.stat(model / "model.safetensors")
    tensors = load_file(file)
    tensors["model.layers.1.mlp.down_proj.weight"].mul_(-2)
    save_file(tensors, file, metadata={"format": "pt"})
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(file).st_size == before.st_size
    packed.clear()
    assert start(model, store) != first
    assert packed and len(kept_in(store)) == 2
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))
    start(model, store)
    assert len(kept_in(store)) == 3


def test_a_moved_checkpoint_is_the_same_one(tmp_path, packed):
    model, store = plain(tmp_path / "model"), tmp_path / "store"
    first = start(model, store)
    packed.clear()
    assert start(shutil.move(model, tmp_path / "moved"), store) == first
    assert packed == []


@pytest.mark.parametrize("change", ["instruction set", "abi", "dtype", "option", "version"])
def test_what_changes_the_packing_is_another_key(tmp_path, monkeypatch, packed, change):
    model, store, options = plain(tmp_path / "model"), tmp_path / "store", {"quantization": "int8"}
    start(model, store, **options)
    before = library.isa()
    try:
        if change == "instruction set":
            library.select_isa(next(one for one in ("base", "avx2") if _selects(one, before)))
        elif change == "abi":
            monkeypatch.setattr("core_plugin_cpu.products.packings.ABI", library.ABI + 1)
        elif change == "version":
            monkeypatch.setattr(identity, "VERSION", identity.VERSION + 1)
        elif change == "dtype":
            options["dtype"] = "bfloat16"
        else:
            options["plugin_options"] = {"int8": {"activations": 16}}
        packed.clear()
        start(model, store, **options)
    finally:
        library.select_isa(before)
    assert packed and len(kept_in(store)) == 2


def _selects(name, before):
    try:
        library.select_isa(name)
    except ValueError:
        return False
    return library.isa() != before


def test_an_update_after_a_kept_start_replaces_the_weights(tmp_path, packed):
    old, new = tiny_llama(tmp_path / "old", seed=1), tiny_llama(tmp_path / "new", seed=2)
    store, due = tmp_path / "store", start(new)
    first = start(old, store)
    files = kept_in(store)
    packed.clear()
    with opened(old, store, weight_transfer="disk") as llm:
        assert said(llm) == first and packed == []
        assert llm.call("update_weights", {"path": str(new), "version": "v2"}) == "v2"
        assert packed and said(llm) == due
    assert kept_in(store) == files
    assert start(old, store) == first


def test_an_update_while_the_weights_are_being_kept_ends_that(tmp_path, monkeypatch):
    """What is in the file is what the checkpoint says, never the update's."""
    old, new, store = tiny_llama(tmp_path / "old", seed=1), tiny_llama(tmp_path / "new", seed=2), tmp_path / "store"
    monkeypatch.setattr(kept, "DELAY_SECONDS", 60.0)
    with opened(old, store, weight_transfer="disk") as llm:
        llm.call("update_weights", {"path": str(new)})
    assert not store.exists()


def test_a_store_that_cannot_be_used_does_not_end_the_start(tmp_path, packed, caplog):
    model, due = plain(tmp_path / "model"), None
    due = start(model)
    (tmp_path / "file").write_text("no folder")
    packed.clear()
    assert start(model, tmp_path / "file" / "store") == due
    assert packed and caplog.text.count("CORE-M223") == 1


def test_weights_of_another_content_under_the_key_are_removed(tmp_path, monkeypatch, caplog):
    """Whatever wrote it: sizes are held against those of the layers before a kernel reads by them."""
    model, store = plain(tmp_path / "model"), tmp_path / "store"
    due, tensors = start(model), kept.PackedWeights._tensors
    with monkeypatch.context() as patch:
        patch.setattr(kept.PackedWeights, "_tensors", lambda self: [(n, torch.cat((t, t))) for n, t in tensors(self)])
        assert start(model, store) == due
    assert start(model, store) == due
    assert "CORE-M221" in caplog.text and len(kept_in(store)) == 1
    caplog.clear()
    assert start(model, store) == due and "CORE-M" not in caplog.text


def test_kept_weights_are_no_memory_of_the_process(tmp_path):
    """Private memory after a start is smaller by the weights: they are pages of the file."""
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "max_position_embeddings": 64}
    model, store = tiny_llama(tmp_path / "model", **sizes), tmp_path / "store"
    start(model, store)
    (file,) = store.iterdir()

    def held():
        with opened(model, store) as llm:
            said(llm)
            loaded = llm._engine._core.executor._worker._loaded
            assert file.stat().st_size * 0.9 < loaded.mapped_bytes <= file.stat().st_size
            maps = Path("/proc/self/smaps").read_text().split(str(file))[1:]
            return [int(one.split("Private_Dirty:")[1].split()[0]) for one in maps]

    assert sum(held()) * 1024 < file.stat().st_size / 100


def test_ranks_have_keys_of_their_own():
    """Layers of several ranks take other cuts of the same tensors, and are told apart by them."""
    config = reference_model().config.to_dict()
    device, dtype = torch.device("cpu"), torch.float32

    def identities(ranks, all_reduce):
        backend = PlainAttention(AttentionContext(device, dtype, dtype, 16))
        form = PlainWeights(QuantContext(device, dtype, {}))
        sizes = {"device": device, "dtype": dtype, "max_positions": 64}
        builder = Builder(form, backend, **sizes, ranks=ranks, all_reduce=all_reduce)
        CausalLM({"architectures": ["LlamaForCausalLM"], **config}, builder)
        return [group.identity for group in builder.groups if isinstance(group, weights.WeightGroup)]

    alone, (first, second) = run_ranks(1, identities)[0], run_ranks(2, identities)
    assert all(alone) and len(alone) == len(first) == len(second)
    assert len({tuple(alone), tuple(first), tuple(second)}) == 3
