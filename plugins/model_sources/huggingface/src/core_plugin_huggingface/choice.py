"""Which files of a repository are needed. Pickled weights are never among them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase

from core_plugin_huggingface.faults import PICKLED, no_gguf, pickled_only, several_ggufs, weightless
from core_plugin_huggingface.files import INDEX
from core_plugin_huggingface.reference import HubReference

PREFERRED = "Q4_K_M"
"""The GGUF file that is taken where nobody says which: small, and nearly as good as the larger ones."""

_BESIDE = ("*.json", "*.jinja", "tokenizer*", "*.model", "*.tiktoken", "merges.txt", "vocab.txt", "README.md")
_MODULE = re.compile(r"\d+_\w+/(config\.json|model\.safetensors)")  # what sentence-transformers keeps beside a model
_USELESS = ("pytorch_model*", "tf_model*", "flax_model*", "trainer_state.json", "consolidated*")
_CODE = (".py", ".so")
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_QUANTIZED = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_\w+)?|TQ\d_\d|(?:MX|NV)FP4(?:_\w+)?|BF16|F16|FP16|F32))(?=$|[-./])", re.I
)


@dataclass(frozen=True, slots=True)
class Choice:
    """Files of a repository, and the one that is the model, if it is one file (or the first of a split one)."""

    files: tuple[str, ...]
    model: str | None = None


def choose(names: Collection[str], wanted: HubReference) -> Choice:
    """Return which of a repository's files are needed: safetensors, or else one GGUF model.

    Raises:
        CheckpointError: CORE-M133 the weights are pickled only, CORE-M134 there are none, CORE-M175 several GGUF files
            and none of them named, or none of that name.
    """
    weights = _safetensors(names)
    if weights and wanted.pick is None:
        return Choice(tuple(sorted({*weights, *filter(_beside, names)})))
    models = ggufs(names)
    if models:
        parts = _picked(models, wanted)
        return Choice((*parts, *(name for name in names if name == "README.md")), parts[0])
    if wanted.pick is not None:
        raise no_gguf(wanted)
    raise pickled_only(wanted) if any(name.endswith(PICKLED) for name in names) else weightless(wanted)


def has_weights(names: Collection[str]) -> bool:
    """Say whether there is any file that may hold weights, in whatever format."""
    return any(name.endswith((".safetensors", ".gguf", *PICKLED)) for name in names)


def ggufs(names: Collection[str]) -> dict[str, list[str]]:
    """Return the GGUF models by quantization, or by file name where that says no more; parts of one are together."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        known = name.lower()
        # Other GGUF files are parts of a model, or figures about it; a name that leads out is nobody's.
        if (
            known.endswith(".gguf")
            and known.rpartition("/")[2] != ".gguf"
            and not any(word in known for word in ("mmproj", "imatrix", ".."))
        ):
            groups.setdefault(_PART.sub("", name[: -len(".gguf")]), []).append(name)
    labels = {stem: quantization(stem) for stem in groups}
    counted = list(labels.values())
    return {label if label and counted.count(label) == 1 else stem: groups[stem] for stem, label in labels.items()}


def quantization(stem: str) -> str | None:
    """Return the quantization in a GGUF file's name without its ending, in capitals."""
    found = _QUANTIZED.findall(stem)
    return found[-1].upper() if found else None


def _picked(models: dict[str, list[str]], wanted: HubReference) -> list[str]:
    if wanted.pick is None:
        if PREFERRED not in models and len(models) > 1:
            raise several_ggufs(wanted, sorted(models))
        return models[PREFERRED] if PREFERRED in models else next(iter(models.values()))
    pick = wanted.pick.lower()
    for label, parts in models.items():
        spellings = {label.lower(), parts[0].lower(), parts[0].lower().removesuffix(".gguf")}
        if pick in spellings | {one.rpartition("/")[2] for one in spellings}:
            return parts
    raise several_ggufs(wanted, sorted(models))


def _safetensors(names: Collection[str]) -> list[str]:
    """Return the weight files at the top: those of the index, the only whole one, or all."""
    found = [name for name in names if fnmatchcase(name, "*.safetensors") and "/" not in name and not _useless(name)]
    if INDEX in names:
        return [name for name in found if "-of-" in name] or found
    return ["model.safetensors"] if "model.safetensors" in found else found


def _beside(name: str) -> bool:
    if _MODULE.fullmatch(name):
        return True
    plain = "/" not in name and not _useless(name) and not name.endswith((*PICKLED, *_CODE, ".safetensors"))
    return plain and any(fnmatchcase(name, pattern) for pattern in _BESIDE)


def _useless(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _USELESS)
