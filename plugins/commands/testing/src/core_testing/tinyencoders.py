"""Tiny random encoder checkpoints in Hugging Face's layout, each with a WordPiece tokenizer of its own.

The weights are random but equal for equal seeds; norms and biases are random too, so that a part which a model
forgets changes the vectors. transformers is imported only inside the functions that need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core_testing.tinymodels import random_model

VOCAB_SIZE = 320
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SUBJECTS = ("the engine", "a scheduler", "one request", "every token", "the cache", "a worker", "the server")
_REST = ("reads long prompts", "writes blocks of memory", "plans the next step", "counts several numbers")

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 96,
    "pad_token_id": 0,
}
_DISTIL = {"vocab_size": VOCAB_SIZE, "dim": 48, "hidden_dim": 80, "n_layers": 3, "n_heads": 4}
_DISTIL |= {"max_position_embeddings": 96, "pad_token_id": 0}
_MODERN = {**_COMMON, "local_attention": 12, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}

ENCODERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("bert", _COMMON),
    "Roberta": ("roberta", {**_COMMON, "type_vocab_size": 1}),
    "XLMRoberta": ("xlm-roberta", {**_COMMON, "type_vocab_size": 1}),
    "DistilBert": ("distilbert", _DISTIL),
    "MPNet": ("mpnet", _COMMON),
    "ModernBert": ("modernbert", _MODERN),
    "NomicBert": ("nomic_bert", _COMMON),
    "Gte": ("gte", {**_COMMON, "type_vocab_size": 2}),
    "JinaEmbeddingsV3": ("jina_embeddings_v3", _COMMON),
}
"""Family -> transformers' model type and a small configuration."""


def tiny_encoder(
    directory: Path, architecture: str = "BertModel", *, seed: int = 0, dtype: str = "float32", **overrides: Any
) -> Path:
    """Write a tiny encoder checkpoint with a tokenizer into `directory` and return the directory.

    Args:
        architecture: A name of transformers, such as `BertForSequenceClassification`.
        overrides: Configuration values to change (`num_labels`, ...).
    """
    import torch

    model = reference_encoder(architecture, seed=seed, **overrides)
    model.to(getattr(torch, dtype)).save_pretrained(directory)
    pair = getattr(model.config, "type_vocab_size", 0) == 2
    return tiny_wordpiece(directory, pair_types=pair, padding_first=not architecture.startswith("MPNet"))


def reference_encoder(
    architecture: str = "BertModel", *, seed: int = 0, model_type: str | None = None, **overrides: Any
) -> Any:
    """Return transformers' model of a tiny configuration with random weights, in float32 and evaluation mode.

    Args:
        model_type: transformers' model type, for an architecture of no family here.
    """
    family = architecture.split("For")[0].removesuffix("Model")
    kind, values = ENCODERS[family] if model_type is None else (model_type, _COMMON)
    return random_model(architecture, kind, {**values, **overrides}, seed=seed)


def tiny_wordpiece(directory: Path, *, pair_types: bool = True, padding_first: bool = True) -> Path:
    """Train a WordPiece tokenizer of `VOCAB_SIZE` ids and write its files.

    Args:
        pair_types: Whether the second text of a pair is of another type than the first.
        padding_first: Whether the padding's id is 0; MPNet takes id 1 for padding wherever it stands.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = _SPECIAL if padding_first else [_SPECIAL[1], _SPECIAL[0], *_SPECIAL[2:]]
    trainer = trainers.WordPieceTrainer(vocab_size=VOCAB_SIZE, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator((f"{one} {two}" for one in _SUBJECTS for two in _REST), trainer)
    second = int(pair_types)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}",
        special_tokens=[(name, _SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    names = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "mask_token": "[MASK]", **names}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    return directory


def sentence_files(
    directory: Path, *, pooling: str = "mean", normalize: bool = True, length: int | None = None
) -> Path:
    """Write sentence-transformers' files beside a checkpoint.

    Args:
        pooling: `mean`, `max`, `cls` or `lasttoken`.
    """
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    folders = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": place, "name": str(place), "path": folders[place], "type": f"sentence_transformers.models.{kind}"}
        for place, kind in enumerate(kinds)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    switches = {"mean": "mean_tokens", "max": "max_tokens", "cls": "cls_token", "lasttoken": "lasttoken"}
    config = {f"pooling_mode_{switch}": name == pooling for name, switch in switches.items()}
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(config))
    if length is not None:
        (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))
    return directory
