"""What structured output costs: compiling a grammar, and the mask of every token, for each installed backend.

    python -m benchmarks.structured_output [--model smollm2] [--backends llguidance,xgrammar] [--json FILE]

Each grammar is walked along a sentence of it, as the model's tokenizer cuts it: before every token the mask is made,
then the token is accepted. Times are microseconds per token; the first walk of a grammar is told apart from later ones,
because backends keep what they have worked out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np

from core.api import CompiledGrammar, StructuredContext, StructuredOutputBackend, Tokenizer

WALKS = 5
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "format": "email"},
        "tags": {"type": "array", "items": {"enum": ["alpha", "beta", "gamma"]}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            "required": ["street", "city"],
        },
    },
    "required": ["name", "age"],
}
SENTENCE = json.dumps(
    {
        "name": "Ada Lovelace, Countess of Lovelace",
        "age": 36,
        "email": "ada@example.com",
        "tags": ["alpha", "gamma"],
        "address": {"street": "12 St James's Square", "city": "London"},
    }
)
CASES = {
    "JSON schema": ("json_schema", json.dumps(PERSON), SENTENCE),
    "any JSON object": ("json_object", "", SENTENCE),
    "pattern": ("regex", r"[0-9]{4}-[0-9]{2}-[0-9]{2} [a-z ]{3,60}", "2026-11-21 a day in late autumn"),
    "100 choices": ("choice", json.dumps([f"the choice number {i}" for i in range(100)]), "the choice number 77"),
    "EBNF": (
        "grammar",
        'root ::= term (("+" | "*") term)*\nterm ::= [0-9]+ | "(" root ")"',
        "(12+345)*(6+7)*89+(1*(2+3))",
    ),
}


def backend(name: str, tokenizer: Tokenizer, vocab_size: int) -> StructuredOutputBackend:
    """Return an installed backend."""
    (entry,) = entry_points(group="core.structured_output", name=name)
    made: StructuredOutputBackend = resolve_name(entry.load().impl)(StructuredContext(vocab_size, lambda: tokenizer))
    return made


def walk(grammar: CompiledGrammar, tokens: list[int], words: int) -> list[float]:
    """Return the seconds of each token's mask and acceptance."""
    matcher, mask, times = grammar.matcher(), np.zeros(words, np.int32), []
    for token in tokens:
        mask[:] = 0
        began = time.perf_counter()
        matcher.fill(mask)
        accepted = matcher.accept(token)
        times.append(time.perf_counter() - began)
        if not accepted:
            raise ValueError(f"token {token} is refused")
    return times


def measure(made: StructuredOutputBackend, tokenizer: Tokenizer, vocab_size: int) -> dict[str, dict[str, float]]:
    """Return the figures of every case."""
    made.compile("regex", "a")  # the library and the vocabulary are loaded with the first grammar
    found: dict[str, dict[str, float]] = {}
    for title, (kind, value, text) in CASES.items():
        tokens = tokenizer.encode(text, add_special_tokens=False)
        began = time.perf_counter()
        grammar = made.compile(kind, value)
        compiled = time.perf_counter() - began
        walks = [walk(grammar, tokens, -(-vocab_size // 32)) for _ in range(WALKS)]
        later = [seconds for one in walks[1:] for seconds in one]
        found[title] = {
            "compile ms": compiled * 1e3,
            "first us": statistics.mean(walks[0]) * 1e6,
            "later us": statistics.median(later) * 1e6,
            "worst us": max(walks[0]) * 1e6,
            "tokens": len(tokens),
        }
    return found


def first_grammar(made: StructuredOutputBackend) -> float:
    """Return the seconds until the first grammar is ready: the library, the vocabulary and a small pattern."""
    began = time.perf_counter()
    made.compile("regex", "ab*")
    return time.perf_counter() - began


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--backends", default="llguidance,xgrammar")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    from core.frontend.overrides import options_with
    from core.selection.resolver import resolve

    resolution = resolve(options_with(None, {"model": arguments.model}))
    tokenizer = resolution.reader.tokenizer(Path(resolution.config.checkpoint.path))
    vocab_size = resolution.config.shape.vocab_size
    report: dict[str, Any] = {"model": arguments.model, "vocabulary": vocab_size, "backends": {}}
    for name in arguments.backends.split(","):
        made = backend(name, tokenizer, vocab_size)
        ready = first_grammar(made)
        report["backends"][name] = {"first grammar ms": ready * 1e3, **measure(made, tokenizer, vocab_size)}
        print(f"{name}: first grammar after {ready * 1e3:.0f} ms; vocabulary of {vocab_size}")
        print(f"  {'grammar':<16} {'compile ms':>11} {'first us':>9} {'later us':>9} {'worst us':>9}")
        for title in CASES:
            one = report["backends"][name][title]
            cells = " ".join(
                f"{one[key]:>{width}.1f}"
                for key, width in (("compile ms", 11), ("first us", 9), ("later us", 9), ("worst us", 9))
            )
            print(f"  {title:<16} {cells}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
