"""Tokenizers of checkpoints without a `tokenizer.json`, from the vocabularies of `core_tokenizers.vocabularies`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import tokenizers
from tokenizers import AddedToken, processors

from core.api.errors import CheckpointError
from core_tokenizers.byte_merges import LLAMA3, QWEN2, from_merges, from_ranks, from_tekken
from core_tokenizers.sentencepiece import Pieces
from core_tokenizers.vocabularies import fault, method_of, read_object, remedy
from core_tokenizers.wordpiece import from_words


@dataclass(frozen=True, slots=True)
class Converted:
    """A tokenizer that was built from a vocabulary.

    Attributes:
        special: Role of a token (`bos_token`) -> its text, where no file says otherwise.
    """

    backend: tokenizers.Tokenizer
    special: Mapping[str, str | list[str]] = field(default_factory=dict)


def convert(path: Path) -> Converted:
    """Build the tokenizer of a directory without `tokenizer.json`.

    Raises:
        CheckpointError: CORE-M110 nothing is there that is understood, CORE-M111 a file is damaged.
    """
    method = method_of(path)
    files = None if method is None else method.found(path)
    if method is None or files is None:
        raise CheckpointError("CORE-M110", f"{fault(path)}.", hint=remedy(path))
    try:
        return _BUILDERS[method.name](files, read_object(path / "tokenizer_config.json"))
    # Whatever is wrong with the content; the library raises bare Exception.
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        text = f"no tokenizer can be made of {files[0]} ({why:.300})."
        raise CheckpointError("CORE-M111", text, hint="Download it again.") from error


# -- what classes do beside their vocabulary ---------------------------------------------------------------------------


def _text(config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name, default)
    value = value.get("content") if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else default


def _surround(
    backend: tokenizers.Tokenizer, before: Sequence[str], after: Sequence[str], between: Sequence[str] | None = None
) -> None:
    """Have the tokenizer put tokens in front of a text and behind it; those that it does not have are left out.

    Args:
        between: What stands in front of the second text of a pair; None: the same as in front of the first.
    """
    ids = {text: backend.token_to_id(text) for text in (*before, *after)}
    front, back = ([text for text in texts if ids[text] is not None] for texts in (before, after))
    if not front and not back:
        return
    names = {text: f"t{number}" for number, text in enumerate(dict.fromkeys([*front, *back]))}
    single = [*(names[text] for text in front), "$A", *(names[text] for text in back)]
    start = front if between is None else between
    second = [f"{part}:1" for part in (*(names[text] for text in start), "$B", *(names[text] for text in back))]
    tokens = [{"id": name, "ids": [ids[text]], "tokens": [text]} for text, name in names.items()]
    backend.post_processor = processors.TemplateProcessing(
        single=single, pair=[*single, *second], special_tokens=tokens
    )


def _named(
    backend: tokenizers.Tokenizer, config: Mapping[str, Any], *, bos: bool, eos: bool, **roles: str
) -> Converted:
    """Return a tokenizer whose flags `add_bos_token` and `add_eos_token` are heeded, with the roles of its tokens."""
    special = {role: _text(config, role, text) for role, text in roles.items()}
    special = {role: text for role, text in special.items() if text and backend.token_to_id(text) is not None}
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    before = [special["bos_token"]] if config.get("add_bos_token", bos) and "bos_token" in special else []
    after = [special["eos_token"]] if config.get("add_eos_token", eos) and "eos_token" in special else []
    _surround(backend, before, after)
    return Converted(backend, special)


def _llama(files: list[Path], config: Mapping[str, Any]) -> Converted:
    pieces = Pieces.read(files[0])
    backend = pieces.backend(everywhere=config.get("legacy", True) is not False)
    return _named(backend, config, bos=True, eos=False, **pieces.roles)


def _fairseq(
    files: list[Path], config: Mapping[str, Any], *, first: str, last: str | None, behind: tuple[str, ...]
) -> Converted:
    """Ids are those of fairseq: four tokens of its own take the place of the first three pieces."""
    pieces = Pieces.read(files[0]).after(("<s>", "<pad>", "</s>", "<unk>"), behind)
    backend = pieces.backend(everywhere=True)
    _surround(backend, [first], [] if last is None else [last], between=["</s>"] if last else ["</s>", "</s>"])
    return Converted(backend, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})


_GLM_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")


def _chatglm(files: list[Path], config: Mapping[str, Any]) -> Converted:
    """ChatGLM 2 and 3: words of its own behind the pieces; `sop` and `eop` are read where they stand alone."""
    pieces = Pieces.read(files[0]).with_unread(("[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", *_GLM_ROLES))
    backend = pieces.backend(everywhere=True)
    read = ("[MASK]", "[gMASK]", "[sMASK]", *_GLM_ROLES)
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in read])
    alone = [AddedToken(text, special=True, normalized=False, single_word=True) for text in ("sop", "eop")]
    backend.add_special_tokens(alone)
    _surround(backend, ["[gMASK]", "sop"], [])
    return Converted(backend, {**pieces.roles, "pad_token": pieces.roles.get("unk_token", "<unk>")})


def _glm4(files: list[Path], config: Mapping[str, Any]) -> Converted:
    backend = from_ranks(files[0], LLAMA3)
    added = config.get("added_tokens_decoder") or {}
    for _, entry in sorted((int(number), entry) for number, entry in added.items()):
        backend.add_special_tokens([AddedToken(entry["content"], special=True, normalized=False)])
    _surround(backend, ["[gMASK]", "<sop>"], [])
    return Converted(backend, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})


def _qwen1(files: list[Path], config: Mapping[str, Any]) -> Converted:
    backend = from_ranks(files[0], QWEN2, composed=True)
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in names])
    return Converted(backend, {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"})


def _tekken(files: list[Path], config: Mapping[str, Any]) -> Converted:
    backend = from_tekken(files[0])
    return _named(backend, config, bos=True, eos=False, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def _merged(
    files: list[Path], config: Mapping[str, Any], *, pattern: str | None, composed: bool, bos: str | None
) -> Converted:
    backend = from_merges(files[0], files[1], pattern, composed=composed, space=bool(config.get("add_prefix_space")))
    end = "<|endoftext|>"
    return _named(
        backend, config, bos=False, eos=False, bos_token=bos or "", eos_token=end, unk_token=end, pad_token=""
    )


def _roberta(files: list[Path], config: Mapping[str, Any]) -> Converted:
    backend = from_merges(files[0], files[1], None, composed=False, space=bool(config.get("add_prefix_space")))
    roles = {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "pad_token": "<pad>"}
    roles |= {"unk_token": "<unk>", "mask_token": "<mask>"}
    special = {role: _text(config, role, text) for role, text in roles.items()}
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    _surround(backend, [special["cls_token"]], [special["sep_token"]], between=[special["sep_token"]])
    return Converted(backend, special)


def _bert(files: list[Path], config: Mapping[str, Any]) -> Converted:
    roles = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    special = {role: _text(config, role, text) for role, text in {**roles, "mask_token": "[MASK]"}.items()}
    return Converted(from_words(files[0], config, special), special)


_BUILDERS: Mapping[str, Callable[[list[Path], Mapping[str, Any]], Converted]] = MappingProxyType(
    {
        "tekken": _tekken,
        "llama": _llama,
        "roberta-pieces": partial(_fairseq, first="<s>", last="</s>", behind=("<mask>",)),
        "xglm": partial(
            _fairseq, first="</s>", last=None, behind=tuple(f"<madeupword{number}>" for number in range(7))
        ),
        "chatglm": _chatglm,
        "glm4": _glm4,
        "qwen1": _qwen1,
        "gpt2": partial(_merged, pattern=None, composed=False, bos="<|endoftext|>"),
        "qwen2": partial(_merged, pattern=QWEN2, composed=True, bos=None),
        "roberta": _roberta,
        "bert": _bert,
    }
)
"""By the names of methods: `(files, tokenizer_config.json) -> tokenizer`."""
