"""Streaming load: exactly the declared tensors, in any order, or an error that names what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from core_plugin_huggingface.reader import SafetensorsReader
from core_plugin_unquantized.plain import Plain

from core.api import PLAIN, CheckpointError, Part, PluginError, WeightRules
from core.worker.loading.names import NameMap

TOKENS = list(range(5, 25))


@dataclass
class Dense:
    """A tensor in memory, as a weight transfer may bring it."""

    name: str
    value: torch.Tensor
    encoding: str = "plain"

    @property
    def shape(self):
        return tuple(self.value.shape)

    def dense(self, dtype):
        return self.value.to(dtype)

    def raw(self):
        return self.value


def tensors(directory) -> dict[str, torch.Tensor]:
    return {tensor.name: tensor.raw() for tensor in SafetensorsReader().tensors(directory, lambda count: None)}


def stream(values):
    return iter([Dense(name, value) for name, value in values.items()])


@pytest.mark.covers("MODEL-02")
def test_merged_linears_hold_their_parts_in_order(checkpoint, load):
    directory = checkpoint("qwen2")
    loaded, stored = load(directory), tensors(directory)
    (_, layer), *_ = loaded.model.passes[0][1:]
    (qkv, *_), *_ = layer[0].body.linears
    prefix = "model.layers.1.self_attn."
    for kind in ("weight", "bias"):
        parts = [stored[f"{prefix}{name}.{kind}"] for name in ("q_proj", "k_proj", "v_proj")]
        torch.testing.assert_close(qkv.params[kind], torch.cat(parts), rtol=0, atol=0)


@pytest.mark.covers("MODEL-02")
def test_several_shards_give_the_same_model_as_one(checkpoint, load, runner):
    whole, split = checkpoint("llama"), checkpoint("llama", shard_size="40KB")
    assert len(list(split.glob("*.safetensors"))) > 3
    torch.testing.assert_close(runner(load(split)).run(TOKENS), runner(load(whole)).run(TOKENS), rtol=0, atol=0)


@pytest.mark.covers("MODEL-02")
def test_a_tied_head_shares_the_embedding_and_its_own_tensor_is_skipped(checkpoint, load, runner):
    directory = checkpoint("llama_tied")
    loaded, stored = load(directory), tensors(directory)
    assert "lm_head.weight" not in stored
    embedding = loaded.model.embed.tokens.params["weight"]
    assert loaded.model.logits.params["weight"].data_ptr() == embedding.data_ptr()
    assert loaded.num_parameters == sum(value.numel() for value in stored.values())
    before = runner(loaded).run(TOKENS)
    loaded.reload(stream(stored | {"lm_head.weight": torch.zeros_like(embedding)}))
    torch.testing.assert_close(runner(loaded).run(TOKENS), before, rtol=0, atol=0)


def test_an_untied_head_has_weights_of_its_own(checkpoint, load):
    model = load(checkpoint("llama")).model
    assert not torch.equal(model.logits.params["weight"], model.embed.tokens.params["weight"])


def test_progress_reaches_the_total(checkpoint, load):
    seen = []
    load(checkpoint("llama"), progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0


@pytest.mark.covers("WT-01")
def test_reload_swaps_all_weights(checkpoint, load, runner):
    other = checkpoint("llama_tied", seed=1)
    loaded = load(checkpoint("llama_tied"))
    loaded.reload(stream(dict(reversed(tensors(other).items()))))
    torch.testing.assert_close(runner(loaded).run(TOKENS), runner(load(other)).run(TOKENS), rtol=0, atol=0)


def _without(stored):
    del stored["model.layers.2.mlp.up_proj.weight"]


def _with_another(stored):
    stored["model.layers.9.mlp.up_proj.weight"] = torch.zeros(1)


def _misshapen(stored):
    stored["model.norm.weight"] = torch.zeros(7)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (_without, "CORE-M121", ["lacks 1 tensor of the model", "model.layers.2.mlp.up_proj.weight"]),
        (_with_another, "CORE-M120", ["model.layers.9.mlp.up_proj.weight"]),
        (_misshapen, "CORE-M122", ["model.norm.weight", "(7,)", "(64,)"]),
    ],
)
def test_a_reload_that_fails_leaves_the_old_weights(change, code, words, checkpoint, load, runner):
    loaded = load(checkpoint("llama"))
    before = runner(loaded).run(TOKENS)
    stored = {name: torch.zeros_like(value) for name, value in tensors(checkpoint("llama")).items()}
    change(stored)
    with pytest.raises(CheckpointError) as caught:
        loaded.reload(stream(stored))
    assert caught.value.code == code
    assert all(word in str(caught.value) for word in words)
    torch.testing.assert_close(runner(loaded).run(TOKENS), before, rtol=0, atol=0)


def test_a_stream_that_breaks_leaves_the_old_weights(checkpoint, load, runner):
    loaded = load(checkpoint("llama"))
    before = runner(loaded).run(TOKENS)

    def broken():
        yield Dense("model.norm.weight", torch.zeros(64))
        raise ConnectionError("the sender is gone")

    with pytest.raises(ConnectionError):
        loaded.reload(broken())
    torch.testing.assert_close(runner(loaded).run(TOKENS), before, rtol=0, atol=0)


def test_a_tensor_that_comes_twice_is_refused(checkpoint, load):
    loaded = load(checkpoint("llama"))
    stored = [Dense(name, value) for name, value in tensors(checkpoint("llama")).items()]
    with pytest.raises(CheckpointError, match=r"CORE-M124 .*model\.norm\.weight"):
        loaded.reload(iter([*stored, Dense("model.norm.weight", torch.zeros(64))]))


def test_values_that_the_method_cannot_decode_are_the_checkpoints_fault(checkpoint, load, runner):
    class Broken(Dense):
        def dense(self, dtype):
            raise NotImplementedError("no shift of floats\nand a second line")

    loaded = load(checkpoint("llama"))
    before = runner(loaded).run(TOKENS)
    words = r"CORE-M203 .*'model\.norm\.weight' cannot be used: NotImplementedError: no shift of floats\. "
    with pytest.raises(CheckpointError, match=words):
        loaded.reload(iter([Broken("model.norm.weight", torch.zeros(64))]))
    torch.testing.assert_close(runner(loaded).run(TOKENS), before, rtol=0, atol=0)


@pytest.mark.covers("MODEL-02")
def test_at_most_five_names_are_listed(checkpoint, load):
    loaded = load(checkpoint("llama"))
    with pytest.raises(CheckpointError) as caught:
        loaded.reload(stream({f"extra.{index}": torch.zeros(1) for index in range(8)}))
    message = str(caught.value)
    assert message.count("extra.") == 5
    assert "and 3 more" in message
    assert "the checkpoint lacks" in message  # what is missing is named as well


def test_rules_rename_once_and_skip_by_glob():
    rules = WeightRules(rename=(("model.text.", "model."), ("model.", "other.")), skip=("*.inv_freq",))
    names = NameMap(rules, {"lm_head.weight"})
    assert names("model.text.norm.weight") == "model.norm.weight"
    assert names("model.norm.weight") == "other.norm.weight"
    assert names("model.layers.0.rotary_emb.inv_freq") is None
    assert names("lm_head.weight") is None
    assert names("lm_head.bias") == "lm_head.bias"


def test_old_rotary_frequencies_are_left_out(checkpoint, load):
    loaded = load(checkpoint("llama"))
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    loaded.reload(stream(tensors(checkpoint("llama")) | extra))


def test_a_wrong_read_is_the_formats_fault_and_not_the_checkpoints(checkpoint, load):
    class Odd(Plain):
        def read(self, site, part, tensors):
            return Part(PLAIN, torch.zeros(3, 2))

    with pytest.raises(PluginError, match=r"CORE-P108 .*read\(\) of '.*' made codes of shape \(3, 2\)"):
        load(checkpoint("llama"), quantization=Odd)
