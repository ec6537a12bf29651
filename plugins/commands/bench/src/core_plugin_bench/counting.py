"""How long a text is in tokens: with a tokenizer's files at hand, or by asking the server."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from core.api import ConfigError
from core_plugin_bench.datasets import Count
from core_tokenizers import tokenizer_from_directory

if TYPE_CHECKING:
    from core.api import Tokenizer


def local_tokenizer(reference: str | None) -> Tokenizer | None:
    """Return the tokenizer of a model folder; None if `reference` is no folder (then it is only a name)."""
    if reference is None or not Path(reference, "tokenizer.json").is_file():
        return None
    return tokenizer_from_directory(reference)


def server_count(base: str, model: str, headers: dict[str, str], *, verify: ssl.SSLContext | bool = True) -> Count:
    """Return a counter that asks the server's `/tokenize`, as core, vLLM and llama.cpp serve it."""
    http = httpx.Client(headers=headers, verify=verify, timeout=60.0)

    def count(text: str) -> int:
        try:
            answer = http.post(f"{base}/tokenize", json={"model": model, "prompt": text, "content": text})
            answer.raise_for_status()
            return len(answer.json()["tokens"])
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                "CORE-C108",
                f"flag --tokenizer: needed to count tokens, since {base}/tokenize did not: {error}.",
                hint="Give the folder that holds the model's tokenizer.json.",
            ) from None

    return count
