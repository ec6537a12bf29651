"""The checkpoints of a shape: written tensor by tensor, since they are larger than what memory should hold of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.compare.shapes.base import Shape

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

LONGEST = 40_960
"""Tokens of a text, as the checkpoints say."""

KNOWN = 32_000
"""Tokens that the borrowed tokenizer has for sure. Rows of larger vocabularies are zero from here on: greedy choices
then are tokens that it knows."""

_PART = 2 << 30
"""Bytes of a safetensors file, about."""


def hugging_face(shape: Shape, tokenizer: Path, target: Path) -> None:
    """Write a checkpoint in bfloat16, with somebody else's tokenizer: nothing of what it says is read."""
    import torch

    target.mkdir()
    for file in tokenizer.glob("*token*"):
        shutil.copy(file, target)
    (target / "config.json").write_text(json.dumps({**_common(shape), **shape.config}, indent=2))
    parts, made = _Parts(target), _Weights()
    for name, size in shape.tensors():
        values = torch.from_numpy(_values(shape, made, size)) if len(size) > 1 else torch.ones(size)
        parts.add(name, values.bfloat16())
    parts.close()


def _common(shape: Shape) -> dict[str, Any]:
    return {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": LONGEST,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def write_index(target: Path, places: dict[str, str]) -> None:
    """Write which file has which tensor."""
    index = {"metadata": {}, "weight_map": places}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))


class _Parts:
    """Writes tensors to files of a size."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._places: dict[str, str] = {}
        self._part: dict[str, Tensor] = {}
        self._files = 0

    def add(self, name: str, tensor: Tensor) -> None:
        """Add a tensor."""
        self._part[name] = tensor
        if sum(one.nbytes for one in self._part.values()) > _PART:
            self._write()

    def close(self) -> None:
        """Write what is left, and the index."""
        if self._part:
            self._write()
        write_index(self._target, self._places)

    def _write(self) -> None:
        from safetensors.torch import save_file

        self._files += 1
        file = f"model-{self._files:05}.safetensors"
        save_file(self._part, self._target / file, metadata={"format": "pt"})
        self._places.update(dict.fromkeys(self._part, file))
        self._part = {}


def gguf_file(shape: Shape, kind: str, target: Path) -> None:
    """Write a GGUF file of one type, as `BF16`, with a vocabulary that is as made up as the weights."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(target, shape.arch)
    writer.add_file_type(int(gguf.LlamaFileType[f"MOSTLY_{kind}"]))
    _add_vocabulary(writer, shape.vocabulary)
    _add_metadata(writer, shape)
    tensors = [(name, size, _type_of(name, size, kind)) for name, size in shape.gguf_tensors()]
    for name, size, stored in tensors:
        form = gguf.GGMLQuantizationType[stored]
        count = int(np.prod(gguf.quants.quant_shape_to_byte_shape(size, form)))
        writer.add_tensor_info(name, size, np.dtype(np.float32), count, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    made = _Weights()
    for name, size, stored in tensors:
        # A decay is the exponential of a product with `ssm_a`.
        alike = np.full(size, -1.0 if "ssm_a" in name else 1.0, np.float32)
        values = _values(shape, made, size) if len(size) > 1 else alike
        form = gguf.GGMLQuantizationType[stored]
        writer.write_tensor_data(values if stored == "F32" else gguf.quants.quantize(values, form))
    writer.close()


def _type_of(name: str, size: tuple[int, ...], kind: str) -> str:
    return "F32" if len(size) == 1 or "ffn_gate_inp" in name or "ssm_conv1d" in name else kind


def _add_metadata(writer: Any, shape: Shape) -> None:
    common = {
        "vocab_size": shape.vocabulary,
        "context_length": LONGEST,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for name, value in {**common, **shape.metadata}.items():
        add = writer.add_float32 if isinstance(value, float) else writer.add_uint32
        add(f"{shape.arch}.{name}", value)


def _add_vocabulary(writer: Any, size: int) -> None:
    """Add pieces in SentencePiece's form: special ones, bytes, and words of a letter and a number."""
    import gguf

    special, unknown, bytes_, normal = (
        gguf.TokenType.CONTROL,
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.BYTE,
        gguf.TokenType.NORMAL,
    )
    pieces = [("<unk>", unknown), ("<s>", special), ("</s>", special)]
    pieces += [(f"<0x{byte:02X}>", bytes_) for byte in range(256)]
    pieces += [(f"\u2581w{number}", normal) for number in range(size - len(pieces))]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([piece for piece, _ in pieces])
    writer.add_token_scores([-float(place) for place in range(len(pieces))])
    writer.add_token_types([kind for _, kind in pieces])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def _values(shape: Shape, made: _Weights, size: tuple[int, ...]) -> np.ndarray[Any, Any]:
    values = made(size)
    if size == (shape.vocabulary, shape.hidden):
        values[KNOWN:] = 0
    return values


class _Weights:
    """Gives random weights: parts of one block of random numbers, each from another place of it."""

    def __init__(self) -> None:
        import numpy as np

        self._block = np.random.default_rng(0).normal(0.0, 0.02, 1 << 24).astype(np.float32)
        self._place = 0

    def __call__(self, size: tuple[int, ...]) -> np.ndarray[Any, Any]:
        import numpy as np

        count = int(np.prod(size))
        self._place = (self._place + 1_000_003) % len(self._block)
        return np.resize(np.roll(self._block, -self._place), count).reshape(size)
