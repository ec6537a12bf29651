"""A model configuration with Hugging Face's keys, from GGUF metadata."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gguf.constants import GGMLQuantizationType

from core.api.configs import MOST_POSITIONS
from core_plugin_gguf.architecture import COUNTS, Facts
from core_plugin_gguf.faults import damaged, unsupported
from core_plugin_gguf.layers import by_layer, layer_count
from core_plugin_gguf.rope import rope_scaling
from core_plugin_gguf.table import ARCHITECTURES, KNOWN_ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core_plugin_gguf.architecture import Architecture
    from core_plugin_gguf.header import Header, TensorInfo
    from core_plugin_gguf.kinds import Kind

_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
}
"""llama.cpp's name of a sampling parameter, below `general.sampling` -> that of `generation_config.json`."""

_POOLING = {1: "mean", 2: "cls", 3: "last"}
"""`gguf.PoolingType` -> the name of the way."""
_NO_TOKEN = (-1, 2**32 - 1)
"""Ids that converters write for a token that the model does not have."""
_DTYPES: Mapping[Kind, str] = {GGMLQuantizationType.F32: "float32", GGMLQuantizationType.F16: "float16"}


def architecture(header: Header) -> str:
    """Return GGUF's name of the architecture, or refuse one that cannot be translated (`CORE-M140`)."""
    name = header.text("general.architecture")
    if not name:
        raise damaged(header.path, "the key general.architecture is missing")
    known = ARCHITECTURES.get(name)
    if known is not None and (known.experts or not header.integer(f"{name}.expert_count")):
        return name
    what = f"{name} with experts" if name in ARCHITECTURES else name
    model = KNOWN_ARCHITECTURES.get(name, "")
    text = f"models of GGUF architecture {what} cannot be read from GGUF; those of {len(ARCHITECTURES)} others can"
    hint = "" if model else "Give another model, or install a weight loader that reads this one."
    raise unsupported(header.path, text, hint, architecture=model)


def model_config(header: Header, tensors: Sequence[TensorInfo]) -> dict[str, Any]:
    """Return the configuration of the model in `tensors`, described by `header`.

    Raises:
        CheckpointError: `CORE-M140` or `CORE-M141`, naming the key or tensor that is missing or not understood.
    """
    arch = architecture(header)
    by_name = {tensor.name: tensor for tensor in tensors}
    embedding = by_name.get("token_embd.weight")
    if embedding is None:
        raise damaged(header.path, "tensor token_embd.weight is missing")
    table = ARCHITECTURES[arch]
    usual: dict[str, Any] = _sizes(header, arch, embedding, by_name)
    if table.rotates:
        usual["rope_theta"] = header.positive_number(f"{arch}.rope.freq_base", 10000.0, least=1.0, most=1e12)
        rotary = header.positive_integer(f"{arch}.rope.dimension_count", usual["head_dim"], most=usual["head_dim"])
        usual["rope_scaling"] = rope_scaling(header, arch, by_name, rotary)
        usual |= _rotated(header, table.partial, rotary, usual["head_dim"])
    usual |= _norms(header, arch, table)
    usual["tie_word_embeddings"] = "output.weight" not in by_name
    config = {table.keys.get(name, name): value for name, value in usual.items()}
    config |= {"architectures": [table.model], "model_type": table.model_type, **table.values}
    facts = Facts(header, arch, by_name, usual)
    for read in table.reads:
        config |= read(facts)
    config["torch_dtype"] = _DTYPES.get(embedding.kind, "bfloat16")
    return config | special_ids(header, config["vocab_size"])


def generation_config(header: Header, vocab_size: int) -> dict[str, Any]:
    """Return sampling defaults that the file recommends, and the ids that end a generation."""
    values: dict[str, Any] = {name: header.number(f"general.sampling.{key}") for key, name in _SAMPLING.items()}
    values["bos_token_id"] = special_ids(header, vocab_size).get("bos_token_id")
    values["eos_token_id"] = eos_ids(header, vocab_size) or None
    return {name: value for name, value in values.items() if value is not None}


def pooling(header: Header) -> dict[str, Any]:
    """Return how the makers pool, where the file says it."""
    value = header.integer(f"{architecture(header)}.pooling_type")
    return {} if value not in _POOLING else {"method": _POOLING[value]}


def special_ids(header: Header, vocab_size: int) -> dict[str, int]:
    """Return `bos_token_id`, `eos_token_id`, `pad_token_id`, `unk_token_id`, where named and in the vocabulary."""
    keys = {"bos": "bos", "eos": "eos", "pad": "padding", "unk": "unknown"}
    ids = {f"{name}_token_id": header.integer(f"tokenizer.ggml.{key}_token_id") for name, key in keys.items()}
    return {name: value for name, value in ids.items() if value is not None and 0 <= value < vocab_size}


def eos_ids(header: Header, vocab_size: int) -> list[int]:
    """Return the ids that end a generation: end of sequence, of turn, of message.

    Raises:
        CheckpointError: `CORE-M141`, one of them is not in the vocabulary.
    """
    found: dict[int, None] = {}
    for name in ("eos", "eot", "eom"):
        key = f"tokenizer.ggml.{name}_token_id"
        value = header.integer(key)
        if value is None or value in _NO_TOKEN:
            continue
        if not 0 <= value < vocab_size:
            raise damaged(header.path, f"{key} is {value}, but the vocabulary has {vocab_size} tokens")
        found[value] = None
    return list(found)


def _norms(header: Header, arch: str, table: Architecture) -> dict[str, float]:
    """Return the epsilon of the norms by its key of the configuration."""
    if table.eps is None:
        return {}
    keys = [f"{arch}.attention.layer_norm_{name}" for name in ("epsilon", "rms_epsilon")]
    own, other = keys if table.layer_norm else keys[::-1]
    # Converters go by its name in the configuration, whatever the norms are (Nemotron-H).
    return {table.eps: header.positive_number(own if own in header or other not in header else other, most=1.0)}


def _rotated(header: Header, key: str | None, count: int, head_dim: int) -> dict[str, float]:
    """Return how much of a head rotates, by its key of the configuration; refuse a part where there is no such key."""
    if key is None and count != head_dim:
        what = f"only {count} of the {head_dim} dimensions of a head rotate, which is not supported"
        raise unsupported(header.path, what, "Serve the model from a safetensors checkpoint instead.")
    if key is None:
        return {}
    if key in COUNTS:
        return {key: count}
    share = count / head_dim
    # Models multiply it and cut off what is behind the point.
    return {key: share if int(head_dim * share) == count else math.nextafter(share, 2.0)}


def _sizes(header: Header, arch: str, embedding: TensorInfo, tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    hidden = header.positive_integer(f"{arch}.embedding_length")
    layers = layer_count(header, arch)
    table = ARCHITECTURES[arch]
    if not table.attends:
        return _headless(header, arch, embedding)
    if table.uneven:
        return _uneven(header, arch, embedding)
    heads = header.positive_integer(f"{arch}.attention.head_count")
    kv_heads = header.first_positive_integer(f"{arch}.attention.head_count_kv", heads)
    head_dim = header.positive_integer(f"{arch}.attention.key_length", hidden // heads)
    head_dim = header.positive_integer(f"{arch}.{table.head}", head_dim)
    if head_dim % 2 or heads % kv_heads:
        raise damaged(header.path, f"{heads} heads of {head_dim} do not go with {kv_heads} key-value heads")
    _require_columns(header, embedding, hidden)
    first = next(iter(table.blocks))
    names = (f"blk.{index}.{first}.weight" for index in range(layers))
    lost = next((name for name in names if name not in tensors), None)
    if lost is not None:
        raise damaged(header.path, f"{arch}.block_count is {layers}, but tensor {lost} is missing")
    inner = header.first_positive_integer(f"{arch}.feed_forward_length")
    fused = "mlp.gate_up_proj" in table.blocks.values()
    sizes = {
        "attn_q": ("attention.head_count", heads * head_dim),
        "attn_k": ("attention.head_count_kv", kv_heads * head_dim),
        table.inner: ("feed_forward_length", 2 * inner if fused else inner // 2 if table.both else inner),
    }
    for module, (key, rows) in sizes.items():
        tensor = tensors.get(f"blk.0.{module}.weight")
        if tensor is not None and tensor.shape[0] != rows:
            number = header.first_positive_integer(f"{arch}.{key}")
            what = f"with {arch}.{key} {number} tensor {tensor.name} has {rows} rows"
            raise damaged(header.path, f"{what}, but the file gives it {tensor.shape[0]}")
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": header.positive_integer(f"{arch}.context_length", most=MOST_POSITIONS),
    }


def _require_columns(header: Header, embedding: TensorInfo, hidden: int) -> None:
    if embedding.shape != (embedding.shape[0], hidden):
        raise damaged(header.path, f"tensor {embedding.name} has shape {embedding.shape}, not {hidden} columns")


def _uneven(header: Header, arch: str, embedding: TensorInfo) -> dict[str, int]:
    """Return the sizes of a model whose layers have their own: the greatest ones."""
    hidden = header.positive_integer(f"{arch}.embedding_length")
    _require_columns(header, embedding, hidden)
    heads = max(by_layer(header, arch, "attention.head_count"))
    head_dim = header.positive_integer(f"{arch}.attention.key_length", hidden // max(heads, 1))
    head_dim = header.positive_integer(f"{arch}.{ARCHITECTURES[arch].head}", head_dim)
    if not heads or head_dim % 2:
        raise damaged(header.path, f"{heads} heads of {head_dim} are no attention")
    # Models whose layers all have experts need not have another size.
    inner = header.integer(f"{arch}.expert_feed_forward_length") or None
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": max(by_layer(header, arch, "feed_forward_length", inner)),
        "num_hidden_layers": layer_count(header, arch),
        "num_attention_heads": heads,
        "num_key_value_heads": max(by_layer(header, arch, "attention.head_count_kv", heads)),
        "head_dim": head_dim,
        "max_position_embeddings": header.positive_integer(f"{arch}.context_length", most=MOST_POSITIONS),
    }


def _headless(header: Header, arch: str, embedding: TensorInfo) -> dict[str, int]:
    """Return the sizes of a model without attention."""
    hidden = header.positive_integer(f"{arch}.embedding_length")
    _require_columns(header, embedding, hidden)
    return {
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "num_hidden_layers": layer_count(header, arch),
        "max_position_embeddings": header.positive_integer(f"{arch}.context_length", most=MOST_POSITIONS),
    }
