"""Which vocabulary a checkpoint without `tokenizer.json` has, and whether it can be converted; told by names alone.

No code of a checkpoint is run: what a tokenizer class does beside its vocabulary is known here by its name.
Imports nothing of `tokenizers`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Method:
    """How the tokenizers of some classes are built.

    Attributes:
        name: Of who builds it, in `core_tokenizers.conversion`.
        files: Patterns of the files that must be there, one for each.
        classes: Names without `Fast`.
        models: Values of `model_type` that mean these classes where no class is named.
    """

    name: str
    files: tuple[str, ...]
    classes: frozenset[str]
    models: frozenset[str] = frozenset()

    def found(self, path: Path) -> list[Path] | None:
        """Return the files in a directory, or None if one is missing."""
        paths = [next(iter(sorted(path.glob(pattern))), None) for pattern in self.files]
        there = [one for one in paths if one is not None]
        return there if len(there) == len(paths) else None


def _method(name: str, files: str, classes: str, models: str = "") -> Method:
    return Method(name, tuple(files.split()), frozenset(classes.split()), frozenset(models.split()))


TEKKEN = _method("tekken", "tekken.json", "")
METHODS: tuple[Method, ...] = (
    _method(
        "llama",
        "*.model",
        "LlamaTokenizer CodeLlamaTokenizer Phi3Tokenizer GemmaTokenizer BaichuanTokenizer BaiChuanTokenizer "
        "InternLMTokenizer InternLM2Tokenizer InternLM3Tokenizer OrionTokenizer YiTokenizer HeliumTokenizer",
        "llama mistral phi3 gemma gemma2 gemma3_text baichuan internlm internlm2 orion yi minicpm",
    ),
    _method("roberta-pieces", "*.model", "XLMRobertaTokenizer", "xlm-roberta"),
    _method("xglm", "*.model", "XGLMTokenizer", "xglm"),
    _method("chatglm", "*.model", "ChatGLMTokenizer"),
    _method("glm4", "*.model", "ChatGLM4Tokenizer"),
    _method("qwen1", "*.tiktoken", "QWenTokenizer", "qwen"),
    _method(
        "gpt2",
        "vocab.json merges.txt",
        "GPT2Tokenizer CodeGenTokenizer GPTNeoXTokenizer",
        "gpt2 gpt_neo gptj codegen gpt_bigcode opt",
    ),
    _method("qwen2", "vocab.json merges.txt", "Qwen2Tokenizer", "qwen2 qwen3"),
    _method("roberta", "vocab.json merges.txt", "RobertaTokenizer", "roberta"),
    _method("bert", "vocab.txt", "BertTokenizer DistilBertTokenizer", "bert distilbert nomic_bert"),
)
_VOCABULARIES = ("tekken.json", "*.model", "*.tiktoken", "vocab.json", "vocab.txt")
_GENERAL = frozenset({"PreTrainedTokenizer", "PythonBackend", "TokenizersBackend"})
"""Classes that say nothing of a vocabulary."""


def method_of(path: Path) -> Method | None:
    """Return how the tokenizer of a directory without `tokenizer.json` is built; None: it cannot be."""
    if TEKKEN.found(path):  # whoever has it has nothing better, whatever its class is called
        return TEKKEN
    name, model = class_of(path), str(read_object(path / "config.json").get("model_type"))
    meant = (one for one in METHODS if (name in one.classes if name else model in one.models))
    return next((one for one in meant if one.found(path) is not None), None)


def fault(path: Path) -> str:
    """Return why a directory has no tokenizer; empty if it has one, or one can be converted."""
    if (path / "tokenizer.json").is_file() or method_of(path) is not None:
        return ""
    files, name = _vocabularies(path), class_of(path)
    lost = f"there is no tokenizer.json in {path}"
    if not files:
        return lost
    named = f" for the class {name}" if name else ""
    code = ", which is Python code of the checkpoint" if _own_code(path) else ""
    return f"{lost}, and its {files[0]}{named}{code} cannot be converted here"


def remedy(path: Path) -> str:
    """Return what to do about a directory without a tokenizer."""
    if not _vocabularies(path):
        return "Download it with the model: tokenizer.json, or a vocabulary (tokenizer.model, tekken.json)."
    if _own_code(path):
        return "Code of checkpoints is never run: take a version of the model that has a tokenizer.json."
    program = "import sys, transformers as t; t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])"
    packages = "transformers sentencepiece protobuf tiktoken"
    return f"Make it: `python -m pip install {packages}`, then `python -c '{program}' {path}`."


def class_of(path: Path) -> str:
    """Return the name of the tokenizer's class without `Fast`; empty if none says more than that it is a tokenizer."""
    given = _config(path).get("tokenizer_class") or read_object(path / "config.json").get("tokenizer_class")
    name = given.removesuffix("Fast") if isinstance(given, str) else ""
    return "" if name in _GENERAL else name


def read_object(file: Path) -> dict[str, Any]:
    """Return a JSON file's object, empty without one: who needs it complains of what is wrong with it."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _config(path: Path) -> dict[str, Any]:
    return read_object(path / "tokenizer_config.json")


def _own_code(path: Path) -> bool:
    mapped = _config(path).get("auto_map")
    return isinstance(mapped, Mapping) and "AutoTokenizer" in mapped


def _vocabularies(path: Path) -> list[str]:
    return [one.name for pattern in _VOCABULARIES for one in sorted(path.glob(pattern))]
