"""GGUF files of tiny models, as llama.cpp's converter makes them: its names, its keys, its orders of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as ARCH

from core_testing.families import TinyFamily

PAIRED = {
    *(ARCH.LLAMA, ARCH.MISTRAL3, ARCH.LLAMA_EMBED, ARCH.GRANITE, ARCH.MINICPM, ARCH.SMOLLM3, ARCH.ARCEE, ARCH.OLMO),
    *(ARCH.BAICHUAN, ARCH.INTERNLM2, ARCH.XVERSE),
    *(ARCH.ARCTIC, ARCH.DEEPSEEK, ARCH.GRANITE_MOE, ARCH.BAILINGMOE, ARCH.GRANITE_HYBRID),
}
"""Architectures whose queries and keys are stored in the order of interleaved rotary embedding."""


Array = np.ndarray[Any, Any]


class Config:
    """A configuration, asked by any of several names for the same thing."""

    def __init__(self, row: TinyFamily, model: Any) -> None:
        self.given = row.values()
        own = getattr(model, "config", None) or self.given
        self.own = SimpleNamespace(**own) if isinstance(own, dict) else own
        self.own.allow_global_per_layer_attribute_access = True

    def __call__(self, *names: str, default: Any = None) -> Any:
        found = (getattr(self.own, name, None) for name in names)
        return next((value for value in found if value is not None), default)

    @property
    def hidden(self) -> int:
        """Size of hidden states."""
        return int(self("hidden_size", "n_embd", "d_model"))

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self("num_hidden_layers", "n_layer", "n_layers"))

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return int(self("num_attention_heads", "n_head", "n_heads"))

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return int(self("num_key_value_heads", default=self.heads))

    @property
    def head_dim(self) -> int:
        """Size of a head."""
        return int(self("head_dim", default=self.hidden // self.heads))

    @property
    def rope(self) -> Mapping[str, Any]:
        """Parameters of the rotary embedding: those of full attention, where there are several."""
        given: Mapping[str, Any] = self("rope_parameters", "rope_scaling", default={})
        full: Mapping[str, Any] = given.get("full_attention", given)
        return full


def _nothing(writer: gguf.GGUFWriter, config: Config, prefix: str) -> None:
    """Write nothing."""


def _as_it_is(name: str, value: Array, config: Config) -> list[tuple[str, Array]]:
    return [(name, value)]


def _all(writer: gguf.GGUFWriter, tensors: dict[str, Array]) -> dict[str, Array]:
    return tensors


def _bytes_and_words(writer: gguf.GGUFWriter, size: int) -> None:
    """Bytes, and as many further tokens as there must be."""
    tokens = ["<unk>", "<bos>", "<eos>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += [f"word{number}" for number in range(size - len(tokens))]
    kinds = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * (size - 259)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * size)
    writer.add_token_types(kinds)


@dataclass(frozen=True)
class Form:
    """How models of an architecture become a file.

    Attributes:
        arch: Or GGUF's name of one that the library does not know; `change` and `gather` then give GGUF's names.
        further: Writes what only this architecture has: `(writer, config, key prefix)`.
        change: `(name, array, config) -> [(name, array), ...]`, before names are translated.
        gather: What is made of all of them: `(writer, {name: array}) -> {name: array}`.
        vocabulary: Writes one of a size.
        saved: Tensors have the names and forms of the checkpoint that transformers writes, not those of its modules.
    """

    arch: gguf.MODEL_ARCH | str
    further: Callable[[gguf.GGUFWriter, Config, str], None] = _nothing
    change: Callable[[str, Array, Config], list[tuple[str, Array]]] = _as_it_is
    gather: Callable[[gguf.GGUFWriter, dict[str, Array]], dict[str, Array]] = _all
    vocabulary: Callable[[gguf.GGUFWriter, int], None] = _bytes_and_words
    saved: bool = False


def write_gguf(path: Path, row: TinyFamily, model: Any, form: Form) -> None:
    """Write the file of a row's reference model."""
    config, prefix = Config(row, model), _prefix(form.arch)
    writer = gguf.GGUFWriter(path, prefix)
    _add_sizes(writer, config)
    _add_rope(writer, config, prefix)
    form.further(writer, config, prefix)
    form.vocabulary(writer, config("vocab_size"))
    names = None if isinstance(form.arch, str) else names_of(form.arch, config.layers)
    tied = config("tie_word_embeddings", default=False)
    tensors: dict[str, Array] = {}
    for name, value in _saved(model) if form.saved else _stored(row, model):
        if (tied and name in ("lm_head.weight", "embed_out.weight")) or name.endswith((".inv_freq", "masked_bias")):
            continue
        tensors |= form.change(name, value.float().numpy(), config)
    for name, array in form.gather(writer, tensors).items():
        stored = name if names is None else names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert stored is not None, name
        if form.arch in PAIRED:
            array = _paired(stored, array, config)
        writer.add_tensor(stored, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _prefix(arch: gguf.MODEL_ARCH | str) -> str:
    return arch if isinstance(arch, str) else gguf.MODEL_ARCH_NAMES[arch]


def names_of(arch: gguf.MODEL_ARCH, layers: int) -> gguf.TensorNameMap:
    """Return the library's table of names; it keeps what one architecture calls otherwise for all later ones."""
    usual = dict(gguf.TensorNameMap.block_mappings_cfg)
    try:
        return gguf.get_tensor_name_map(arch, layers)
    finally:
        gguf.TensorNameMap.block_mappings_cfg.clear()
        gguf.TensorNameMap.block_mappings_cfg.update(usual)


def _stored(row: TinyFamily, model: Any) -> list[tuple[str, Any]]:
    """Return the tensors as a checkpoint of the row has them."""
    tensors = list(model.state_dict().items())
    if row.reference is None or row.save is None:
        return tensors
    return [pair for name, tensor in tensors for pair in row.save(name, tensor)]


def _saved(model: Any) -> list[tuple[str, Any]]:
    """Return the tensors as transformers writes them."""
    from safetensors.torch import load_file

    with TemporaryDirectory() as directory:
        model.save_pretrained(directory)
        return list(load_file(Path(directory) / "model.safetensors").items())


def _add_sizes(writer: gguf.GGUFWriter, config: Config) -> None:
    writer.add_context_length(config("max_position_embeddings", "n_positions", "max_seq_len", default=2048))
    writer.add_embedding_length(config.hidden)
    writer.add_block_count(config.layers)
    inner = config("intermediate_size", "n_inner", "ffn_hidden_size", default=4 * config.hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    if config("head_dim") is not None:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if (eps := config("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")) is not None:
        writer.add_layer_norm_eps(eps)
    else:
        writer.add_layer_norm_rms_eps(config("rms_norm_eps", default=1e-6))


def _add_rope(writer: gguf.GGUFWriter, config: Config, prefix: str) -> None:
    rope = config.rope
    # A base that another rule makes of it is written by whoever knows the rule.
    if (theta := rope.get("rope_theta", config("rope_theta", "rotary_emb_base"))) and "alpha" not in rope:
        writer.add_rope_freq_base(theta)
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key in ("beta_fast", "beta_slow"):
            if key in rope:
                writer.add_float32(f"{prefix}.rope.scaling.yarn_{key}", rope[key])
        if "attention_factor" in rope:
            writer.add_rope_scaling_attn_factors(rope["attention_factor"])
        if "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, config.head_dim))
    elif kind == "longrope":
        original = rope.get("original_max_position_embeddings") or config("original_max_position_embeddings")
        writer.add_rope_scaling_orig_ctx_len(original)
        scale = config("max_position_embeddings") / original
        attention = 1.0 if scale <= 1 else math.sqrt(1 + math.log(scale) / math.log(original))
        writer.add_rope_scaling_attn_factors(rope.get("attention_factor") or attention)
        for length in ("long", "short"):
            factors = np.array(rope[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)


def _llama3_divisors(rope: Mapping[str, Any], size: int) -> Array:
    wave = 2 * math.pi * rope["rope_theta"] ** (np.arange(0, size, 2) / size)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = np.clip((rope["original_max_position_embeddings"] / wave - low) / (high - low), 0, 1)
    divisors: Array = 1 / ((1 - smooth) / rope["factor"] + smooth)
    return divisors.astype(np.float32)


def add_rotary_dimensions(writer: gguf.GGUFWriter, config: Config, prefix: str) -> None:
    """Write how much of a head rotates."""
    share = config.rope.get("partial_rotary_factor") or config("partial_rotary_factor", "rotary_pct", default=1.0)
    writer.add_rope_dimension_count(int(config.head_dim * share))


def _paired(stored: str, array: Array, config: Config) -> Array:
    """Return the rows of queries and keys so that two which rotate together are neighbours."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(stored.split(".")[-2])
    if heads is None:
        return array
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def unfused_turns(array: Array, heads: int, kv_heads: int) -> Array:
    """Return all queries, all keys, all values of rows that have them by turns, one for each head of keys."""
    turns = array.reshape(kv_heads, heads // kv_heads + 2, -1, *array.shape[1:])
    parts = (turns[:, :-2], turns[:, -2], turns[:, -1])
    return np.concatenate([part.reshape(-1, *array.shape[1:]) for part in parts])
