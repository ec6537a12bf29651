"""Tokenizer files in Hugging Face's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from core.api.errors import CheckpointError
from core_tokenizers.conversion import Converted, convert

_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Contents of a directory's tokenizer files, put together."""

    backend: tokenizers.Tokenizer
    special: dict[str, str | list[str]]
    chat_template: str | None
    eos_ids: tuple[int, ...]
    response_template: dict[str, Any] | None = None
    chat_templates: dict[str, str] = field(default_factory=dict)


def read_directory(path: Path) -> TokenizerFiles:
    """Read `tokenizer.json`, or convert the vocabulary that is there in its place, and the companions of both.

    Raises:
        CheckpointError: CORE-M110 there is no `tokenizer.json` and nothing that can be converted, CORE-M111 a file
            cannot be read.
    """
    config = _json(path / "tokenizer_config.json")
    made = _made(path)
    backend = made.backend
    special = {**made.special} | _special(_json(path / "special_tokens_map.json")) | _special(config)
    entries = {int(key): value for key, value in (config.get("added_tokens_decoder") or {}).items()}
    if (path / "tokenizer.json").is_file():
        _add_tokens(backend, entries)
    else:
        _add_tokens(backend, _older_tokens(path, special) | entries, again=True)
        _mark_special(backend, special)
    described = config.get("response_template")
    templates = _templates(path, config)
    return TokenizerFiles(
        backend,
        special,
        templates.pop("default", None),
        _eos_ids(path, backend, special),
        described if isinstance(described, dict) else None,
        templates,
    )


def _made(path: Path) -> Converted:
    file = path / "tokenizer.json"
    if not file.is_file():
        return convert(path)
    try:
        return Converted(tokenizers.Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError("CORE-M111", f"{file} is not a tokenizer: {error}.", hint="Download it again.") from error


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError("CORE-M111", f"{file} cannot be read: {error}.", hint="Download it again.") from error
    if not isinstance(found, dict):
        raise CheckpointError("CORE-M111", f"{file} does not hold a JSON object.", hint="Download it again.")
    return found


def _add_tokens(backend: tokenizers.Tokenizer, entries: Mapping[int, Any], *, again: bool = False) -> None:
    """Add the tokens that only the configuration knows, where their ids come out as it says.

    Args:
        again: Whether those of the vocabulary are added too, so that they are read as a whole.
    """
    for token_id, entry in sorted(entries.items()):
        there = backend.id_to_token(token_id)
        new = there is None and token_id == backend.get_vocab_size(with_added_tokens=True)
        if new or (again and there is not None and there == _text(entry)):
            flags = {name: bool(entry.get(name)) for name in _TOKEN_FLAGS}
            token = AddedToken(_text(entry), **flags)
            (backend.add_special_tokens if flags["special"] else backend.add_tokens)([token])


def _older_tokens(path: Path, special: Mapping[str, str | list[str]]) -> dict[int, dict[str, Any]]:
    """Return the tokens of `added_tokens.json` by id, in which older checkpoints name them."""
    named = _texts(special)
    found = {number: text for text, number in _json(path / "added_tokens.json").items() if isinstance(number, int)}
    return {number: {"content": text, "special": text in named} for number, text in found.items()}


def _mark_special(backend: tokenizers.Tokenizer, special: Mapping[str, str | list[str]]) -> None:
    """Have the tokens that a role or the list of further ones names read as a whole, where the vocabulary has them."""
    known = [text for text in sorted(_texts(special)) if backend.token_to_id(text) is not None]
    backend.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in known])


def _texts(special: Mapping[str, str | list[str]]) -> set[str]:
    return {text for value in special.values() for text in ([value] if isinstance(value, str) else value)}


def _special(config: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Return every named token; a name that is present but null names none."""
    found: dict[str, str | list[str]] = {}
    for name, value in config.items():
        if name.endswith("_token") and (text := _text(value)):
            found[name] = text
        elif name == "additional_special_tokens" and isinstance(value, list):
            found[name] = [text for item in value if (text := _text(item))]
    return found


def _text(value: Any) -> str | None:
    """Return a token's text from its text or from its `AddedToken` form."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _templates(path: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the chat templates by name; files go before what stands in the configuration."""
    given = config.get("chat_template") or _json(path / "chat_template.json").get("chat_template")
    found: dict[str, str] = {}
    for entry in given if isinstance(given, list) else [{"name": "default", "template": given}]:
        name, source = (entry.get("name"), entry.get("template")) if isinstance(entry, Mapping) else (None, None)
        if isinstance(name, str) and isinstance(source, str):
            found[name] = source
    files = {file.stem: file for file in sorted((path / "additional_chat_templates").glob("*.jinja"))}
    files["default"] = path / "chat_template.jinja"
    for name, file in files.items():
        if file.is_file():
            found[name] = _read(file)
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError("CORE-M111", f"{file} cannot be read: {error}.", hint="Download it again.") from error


def _eos_ids(path: Path, backend: tokenizers.Tokenizer, special: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the tokenizer's end of sequence and those of the generation defaults (chat models have several)."""
    named = special.get("eos_token")
    ids = [backend.token_to_id(named)] if isinstance(named, str) else []
    for name in ("generation_config.json", "config.json"):
        given = _json(path / name).get("eos_token_id")
        if given is not None:
            ids += given if isinstance(given, list) else [given]
            break
    return tuple(dict.fromkeys(token for token in ids if isinstance(token, int)))
