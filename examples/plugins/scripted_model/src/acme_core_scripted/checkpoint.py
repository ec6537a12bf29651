"""Writes a checkpoint for the scripted model: a byte tokenizer, a chat template, and the codes as weights."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from acme_core_scripted.config import BITS

EOS, BEGIN, END = "<|over|>", "<|script|>", "<|emit|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.last %}" + BEGIN + "{% endif %}{{ message['content'] or '' }}{% if not loop.last %}\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}" + END + "{% endif %}"
)
"""The answer to a conversation is its last message."""


def write_checkpoint(
    directory: Path,
    *,
    positions: int = 8192,
    special: Sequence[str] = (),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Write the files in Hugging Face's layout into `directory` and return it.

    Args:
        positions: Longest context, in tokens; one token is one byte of text.
        special: Further special tokens, such as the tags of a model family.
        settings: Further keys of `tokenizer_config.json`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_tokenizer(special)
    tokenizer.save(str(directory / "tokenizer.json"))
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    bits = np.arange(size)[:, None] >> np.arange(BITS) & 1
    save_file({"codes.weight": (bits * 2 - 1).astype(np.float32)}, directory / "model.safetensors")
    begin, end, eos = (tokenizer.token_to_id(text) for text in (BEGIN, END, EOS))
    config = {
        "architectures": ["ScriptedForCausalLM"],
        "model_type": "scripted",
        "vocab_size": size,
        "max_position_embeddings": positions,
        "begin_token_id": begin,
        "end_token_id": end,
        "eos_token_id": eos,
    }
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "chat_template": CHAT_TEMPLATE}
    _write(directory / "config.json", config)
    _write(directory / "tokenizer_config.json", {**named, **settings})
    return directory


def byte_tokenizer(special: Sequence[str] = ()) -> Tokenizer:
    """Return a tokenizer with one token per byte, the three marks, and further special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: index for index, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([EOS, BEGIN, END, *special])
    return tokenizer


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2))


def main() -> None:
    """Write a checkpoint from the command line."""
    parser = argparse.ArgumentParser(description="Write a checkpoint for the scripted model.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--positions", type=int, default=8192, help="Longest context, in tokens (default: 8192).")
    args = parser.parse_args()
    print(write_checkpoint(args.directory, positions=args.positions))
