"""Tiny random checkpoints in Hugging Face's layout, each with a tokenizer of its own.

The weights are random but equal for equal seeds; norms and biases are random too, so that a part which a model
forgets changes the logits. transformers is imported only inside the functions that need it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

VOCAB_SIZE = 384
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

_BASE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_WINDOWED = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
_GEMMA = {"head_dim": 32, "sliding_window": 6, "num_hidden_layers": 4, "query_pre_attn_scalar": 24}
_GEMMA3_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {
        "rope_type": "linear",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama_tied": ("llama", {"tie_word_embeddings": True}),
    "llama_bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3_ROPE, "head_dim": 24}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral_window": ("mistral", {"sliding_window": 5}),
    "qwen2": ("qwen2", {}),
    "qwen2_window": ("qwen2", _WINDOWED),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "qwen3_window": ("qwen3", {"head_dim": 16, "attention_bias": True, **_WINDOWED}),
    "gemma2": ("gemma2", {**_GEMMA, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 10.0}),
    "gemma2_untied": ("gemma2", {**_GEMMA, "final_logit_softcapping": None, "tie_word_embeddings": False}),
    "gemma3": ("gemma3_text", {**_GEMMA, "sliding_window_pattern": 3}),
    "gemma3_scaled": (
        "gemma3_text",
        {
            **_GEMMA,
            "sliding_window_pattern": 2,
            "final_logit_softcapping": 10.0,
            "rope_parameters": _GEMMA3_ROPES,
        },
    ),
}
"""Name -> transformers' model type and what differs from the common configuration."""


def tiny_model(
    directory: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    dtype: str = "float32",
    shard_size: str = "1GB",
    **overrides: Any,
) -> Path:
    """Write a tiny checkpoint with a tokenizer into `directory` and return the directory.

    Args:
        family: A name of `FAMILIES`.
        shard_size: Largest weight file; `20KB` makes several.
        overrides: Configuration values to change.
    """
    import torch

    model = reference_model(family, seed=seed, **overrides)
    model.to(getattr(torch, dtype)).save_pretrained(directory, max_shard_size=shard_size)
    tiny_tokenizer(directory)
    return directory


def tiny_llama(directory: Path, *, seed: int = 0, **overrides: Any) -> Path:
    """Write a tiny Llama checkpoint; as `tiny_model`."""
    return tiny_model(directory, "llama", seed=seed, **overrides)


def reference_model(family: str = "llama", *, seed: int = 0, model_type: str | None = None, **overrides: Any) -> Any:
    """Return transformers' model of a tiny configuration with random weights, in float32 and evaluation mode.

    Args:
        model_type: transformers' model type, for one that no family has; `family` then counts for nothing.
    """
    kind, changes = FAMILIES[family] if model_type is None else (model_type, {})
    return random_model("AutoModelForCausalLM", kind, {**_BASE, **changes, **overrides}, seed=seed)


def random_model(name: str, model_type: str, values: Mapping[str, Any], *, seed: int = 0) -> Any:
    """Return transformers' class `name` of a configuration with random weights, in float32 and evaluation mode.

    Args:
        name: An architecture, or a class that chooses one by the configuration, such as `AutoModelForCausalLM`.
        values: Of the configuration of `model_type`.
    """
    import torch

    transformers: Any = import_module("transformers")
    config = transformers.AutoConfig.for_model(model_type, **json.loads(json.dumps(values)))
    config._attn_implementation = "eager"
    made = getattr(transformers, name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = made.from_config(config) if name.startswith("Auto") else made(config)
        model = model.to(torch.float32).train(False)
        with torch.no_grad():
            for parameter in model.parameters():
                # Wide enough for attention and logits that are far from uniform, so that errors are seen.
                centre = 1.0 if parameter.ndim == 1 and bool((parameter == 1).all()) else 0.0
                parameter.normal_(centre, 0.2)
    return model


def tiny_tokenizer(directory: Path) -> Path:
    """Train a byte-level BPE tokenizer of `VOCAB_SIZE` ids with a chat template and write its files."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": _SPECIAL[2],
        "pad_token": _SPECIAL[0],
        "additional_special_tokens": _SPECIAL[1:],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    return directory


def _corpus() -> Iterator[str]:
    """Yield enough different sentences for a vocabulary of the size that is asked for."""
    subjects = ("the engine", "a scheduler", "one request", "every token", "the cache", "a worker", "the server")
    verbs = ("reads", "writes", "shares", "frees", "keeps", "plans", "counts")
    objects = ("blocks of memory", "the next step", "long prompts", "several answers", "user messages", "numbers")
    for subject in subjects:
        for verb in verbs:
            for thing in objects:
                yield f"{subject} {verb} {thing}, and then {thing} again: {len(subject) * len(verb)}."
