"""Own code beside the library that could take its place (docs/decisions/0019-own-code-and-libraries.md).

    python -m benchmarks.own_code [FILE.gguf]

Processor time, the best of several. Readings whose number grows with the square of the length are sampled, and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pydantic_core import from_json

from core.frontend.answering.partial_json import PartialObject

PIECE = 4
"""Characters of an answer that arrive together, about a token's."""

MOST_READINGS = 4096
SAMPLES = 24
ROUNDS = 3
LINES = ("core ser", "core serve --kv-dt", "core serve --tool-parser her", "core show smol")


def best(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the seconds of processor time of the quickest round."""
    took = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return min(took)


def arguments(size: int) -> str:
    """Return the arguments of a call, about `size` characters of JSON."""
    rng = random.Random(size)
    edits, length = [], 0
    while length < size:
        text = "".join(rng.choice('abc def\n"ghi') for _ in range(min(60, size)))
        edits.append({"line": rng.randrange(10_000), "text": text, "keep": rng.random() < 0.5})
        length += len(json.dumps(edits[-1])) + 2
    return json.dumps({"path": "src/main.py", "edits": edits})


def own_partial(text: str) -> None:
    """Pass arguments on as they arrive."""
    read = PartialObject()
    for start in range(0, len(text), PIECE):
        read.feed(text[start : start + PIECE])


def library_partial(text: str, ends: list[int]) -> None:
    """Read the arguments up to each of `ends`."""
    for end in ends:
        from_json(text[:end], allow_partial="trailing-strings")


def partial_json() -> None:
    """Print what arguments of three lengths take in all."""
    for size in (60, 10_000, 1_000_000):
        text = arguments(size)
        ends = [*range(PIECE, len(text), PIECE), len(text)]
        looked = ends if len(ends) <= MOST_READINGS else ends[len(ends) // SAMPLES // 2 :: len(ends) // SAMPLES]
        library = best(lambda t=text, e=looked: library_partial(t, e)) * len(ends) / len(looked)
        own = best(lambda t=text: own_partial(t))
        note = "" if looked is ends else f" ({len(looked)} of {len(ends)} readings measured)"
        print(
            f"partial JSON, {len(text)} characters: own {own * 1e3:.2f} ms, pydantic_core {library * 1e3:.2f} ms{note}"
        )


def gguf(path: Path) -> None:
    """Print what the header of a GGUF file takes, and each token of a text with its tokenizer."""
    from core_plugin_gguf.header import Header
    from core_plugin_gguf.reader import GGUFReader as OwnReader
    from gguf import GGUFReader
    from tokenizers.decoders import DecodeStream

    own = best(lambda: Header(path).strings("tokenizer.ggml.tokens"))
    library = best(lambda: GGUFReader(path), rounds=1)
    print(f"GGUF header with vocabulary: own {own * 1e3:.0f} ms, gguf {library * 1e3:.0f} ms")
    tokenizer = OwnReader().tokenizer(path)
    backend = tokenizer._backend
    ids = backend.encode(" ".join(line.strip() for line in __doc__.splitlines()) * 50).ids

    def own_text() -> str:
        stream = tokenizer.stream([])
        return "".join(map(stream.step, ids)) + stream.flush()

    def library_text() -> str:
        stream = DecodeStream(skip_special_tokens=False)
        return "".join(stream.step(backend, one) or "" for one in ids)

    each = 1e6 / len(ids)
    print(f"text of a token: own {best(own_text) * each:.2f} µs, tokenizers {best(library_text) * each:.2f} µs")


def completion() -> None:
    """Print what a Tab takes."""
    core = [sys.executable, "-m", "core.cli"]
    for line in LINES:
        asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_STDOUT_FILENAME": os.devnull}
        environ = {**os.environ, **asked, "COMP_LINE": line, "COMP_POINT": str(len(line))}
        took = []
        for _ in range(ROUNDS):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(core, env=environ, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"Tab behind {line!r}: {min(took):.2f} s")


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", nargs="?", type=Path, metavar="FILE", help="A GGUF file with a byte-level tokenizer.")
    given = parser.parse_args()
    completion()
    if given.gguf:
        gguf(given.gguf)
    partial_json()


if __name__ == "__main__":
    main()
