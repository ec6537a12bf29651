"""How far each engine is from float32 with the same weights: the demo model, 12 questions, 24 tokens of each answer.

    python -m benchmarks.accuracy [--peers FOLDER] [--only NAME ...] [--tokens 24]

The reference is transformers in float32 with the decoded weights of the same GGUF file; it answers greedily, and every
engine is asked at each place of these answers for the distribution of the next token: once with the text as a prompt,
once computed token by token. Shown are the mean Kullback-Leibler divergence and how often the most likely token is the
reference's. `bf16`, `int8` and `w8a8` are the demo file's weights rounded further, which their figures include. What is
found is kept with the results of `benchmarks.compare`, whose report shows it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import engines
from benchmarks.accuracy.figures import Distribution, Figures, Text, compare
from benchmarks.compare.models import prepare
from benchmarks.compare.store import Store

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain gravity to a child in two sentences.",
    "What is 17 plus 25?",
    "Name three fruits that are red.",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' into Spanish.",
    "Write a Python function that reverses a string.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "What happened in 1969?",
    "Summarize the story of Cinderella.",
)
MANY = 512

Ask = Callable[[Path, Sequence[Text], int, Mapping[str, Any]], list[Distribution]]


@dataclass(frozen=True)
class Variant:
    """An engine with a form of the model; `file`: the GGUF file whose weights the reference has."""

    name: str
    ask: Ask
    form: str
    file: str = "gguf-q4_1"
    options: Mapping[str, Any] = field(default_factory=dict)


def _core(name: str, form: str, **options: Any) -> Variant:
    given = {"dtype": "bfloat16", **options}
    return Variant(f"core-{name}", engines.core, form, form if form.startswith("gguf-q") else "gguf-q4_1", given)


def variants(peers: Path) -> list[Variant]:
    """Return what can be measured, in the order of the report."""
    coarse = {"plugin_options": {"cpu_linear": {"activations": "int8"}, "cpu_lookup": {"activations": "int8"}}}
    files = ("q4_1", "q4_0", "q8_0")
    return [
        _core("bf16", "bf16"),
        Variant("transformers-bf16", engines.transformers, "bf16", options={"dtype": "bfloat16"}),
        *(_core(name, f"gguf-{name}") for name in files),
        *(_core(f"{name}, activations int8", f"gguf-{name}", **coarse) for name in files),
        *(Variant(f"llama-{name}", engines.llama, f"gguf-{name}", f"gguf-{name}", {"peers": peers}) for name in files),
        _core("int8", "bf16", quantization="int8"),
        _core("w8a8", "w8a8"),
    ]


@cache
def reference_model(folder: Path, file: str) -> Any:
    """Return the reference with the weights of a file."""
    import torch

    return engines.load(prepare(folder, file), torch.float32)


def answers(folder: Path, tokens: int) -> Iterator[Text]:
    """Yield the reference's greedy answers to the questions."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(prepare(folder, "bf16"))
    network = reference_model(folder, "gguf-q4_1")
    for question in QUESTIONS:
        chat = [{"role": "user", "content": question}]
        given = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        ids = network.generate(**given, max_new_tokens=tokens, do_sample=False)[0]
        yield Text(ids.tolist(), given["input_ids"].shape[1])


def reference(folder: Path, file: str, texts: Sequence[Text]) -> list[np.ndarray]:
    """Return the log-probabilities `(vocabulary,)` at every place."""
    import torch

    network = reference_model(folder, file)
    logs = [torch.log_softmax(engines.logits_of(network, text, whole=True), dim=-1) for text in texts]
    return [row for one in logs for row in one.numpy()]


def measure(variant: Variant, folder: Path, texts: Sequence[Text]) -> dict[str, Figures]:
    """Return the figures with the texts as prompts and token by token."""
    wanted, model = reference(folder, variant.file, texts), prepare(folder, variant.form)
    ways = {"prompt": MANY, "tokens": 1}
    return {way: compare(wanted, variant.ask(model, texts, count, variant.options)) for way, count in ways.items()}


def main() -> None:
    """Measure, keep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "core-bench"
    parser.add_argument("--peers", default=str(cache), metavar="DIR", help="environments, models and results")
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--tokens", type=int, default=24)
    args = parser.parse_args()
    peers = Path(args.peers).expanduser()
    store, texts = Store(peers / "results"), list(answers(peers / "models", args.tokens))
    for variant in variants(peers):
        if args.only and variant.name not in args.only:
            continue
        ways = measure(variant, peers / "models", texts)
        store.put(variant.name, "accuracy", 1, {"data": {way: asdict(figures) for way, figures in ways.items()}})
        cells = [f"{way}: {one.divergence:.5f}, {one.agreement:.1%}" for way, one in ways.items()]
        print(f"{variant.name:<24} {'; '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
