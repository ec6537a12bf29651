"""Write docs/supported.md: who implements architectures, multiplies with formats of weights, and computes attention.

Everything is read from the descriptors of this checkout's distributions and from the rows of the families' tests
(`plugins/models/*/tests/rows.py`). With `--check` nothing is written: exit status 1 means stale.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from core.api import AttentionSpec, KernelSpec, ModelSpec, QuantSpec

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "supported.md"
_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class Offer:
    """A descriptor, and the distribution that has it."""

    dist: str
    spec: Any


def offers(group: str) -> list[Offer]:
    """Return the descriptors of a group in this checkout."""
    found = []
    for path in sorted(_ROOT.glob("plugins/*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        for value in project.get("entry-points", {}).get(group, {}).values():
            module, _, name = value.partition(":")
            found.append(Offer(project["name"], getattr(import_module(module), name)))
    return found


def tested() -> dict[str, list[str]]:
    """Return architecture -> the rows that show it."""
    found: dict[str, list[str]] = {}
    for path in sorted(_ROOT.glob("plugins/models/*/tests/rows.py")):
        spec = spec_from_file_location(f"rows_of_{path.parts[-3]}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be imported")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for row in module.ROWS:
            found.setdefault(row.architecture, []).append(row.name)
    return found


def page() -> str:
    """Return the text of the page."""
    listed = tomllib.loads((_ROOT / "tools" / "supported.toml").read_text())
    models = offers("core.models")
    return "\n".join(
        [
            "# Supported models, formats and attention",
            "",
            "Written by `tools/supported.py` from the descriptors of this repository's distributions. *Native*: a",
            "model of layers that core hands out; its decode step is a recorded program on a CPU. *Bridge*:",
            "transformers' own forward pass on core's paged attention, slower, on one device. Any native",
            "architecture is served in each of the formats below.",
            "",
            "## Decoders",
            "",
            *_decoders(models, listed["dense"], listed.get("reasons", {})),
            "",
            "## Embeddings, scores and classes",
            "",
            *_pooling(models),
            "",
            "## Formats of weights",
            "",
            *_formats(),
            "",
            "## Attention backends",
            "",
            "What each one states of itself; a start chooses among those that have all that a model asks for, and",
            "`core plugins why MODEL` tells what speaks against the others. *Blocks* of the cache are multiples of",
            "so many tokens. With a *rule* it also judges what no table can say, the card's generation for example",
            "([what each GPU gets](gpu-selection.md)). Features: [AttentionSpec](plugins/kinds/attention_backends.md).",
            "",
            *attention_table([(offer.dist, offer.spec) for offer in offers("core.attention_backends")]),
            "",
        ]
    )


def _decoders(models: list[Offer], dense: list[str], reasons: dict[str, str]) -> Iterator[str]:
    rows, native = tested(), _native(models, "generate")
    yield "| architecture | served | by | tiny checkpoints that show it |"
    yield "|---|---|---|---|"
    for name in sorted({*native, *dense, *reasons}, key=lambda name: (name.lower(), name)):
        shown = ", ".join(rows.get(name, ()))
        if name in native:
            yield f"| `{name}` | native | {native[name]} | {shown} |"
        elif bridge := _bridged(models, name):
            yield f"| `{name}` | bridge | {bridge} | {shown} |"
        else:
            yield f"| `{name}` | no | | {reasons.get(name, 'nobody has written it')} |"


def _native(models: list[Offer], task: str) -> dict[str, str]:
    """Return architecture -> distribution of models that name it."""
    found = {}
    for offer in models:
        spec = cast("ModelSpec", offer.spec)
        if task in spec.tasks:
            found |= dict.fromkeys((name for name in spec.architectures if not _GLOB & set(name)), offer.dist)
    return found


def _bridged(models: list[Offer], name: str) -> str:
    """Return the distribution of a model that takes any architecture and says that it can serve this one."""
    for offer in models:
        spec = cast("ModelSpec", offer.spec)
        globs = [one for one in spec.architectures if _GLOB & set(one)]
        if any(fnmatchcase(name, one) for one in globs):
            module = import_module(spec.impl.partition(":")[0].rpartition(".")[0] + ".eligible")
            if module.eligible(name).ok:
                return offer.dist
    return ""


def _pooling(models: list[Offer]) -> Iterator[str]:
    found = {**_native(models, "classify"), **_native(models, "embed")}
    yield "| architecture | by |"
    yield "|---|---|"
    for name in sorted(found, key=lambda name: (name.lower(), name)):
        yield f"| `{name}` | {found[name]} |"


def _formats() -> Iterator[str]:
    products = [(offer.dist, cast("KernelSpec", offer.spec)) for offer in offers("core.kernels") if offer.spec.forms]
    yield "| format | by |"
    yield "|---|---|"
    for offer in offers("core.quantization"):
        spec = cast("QuantSpec", offer.spec)
        yield f"| {', '.join(f'`{name}`' for name in sorted(spec.methods))} ({spec.summary}) | {offer.dist} |"
    yield ""
    yield "Where no product takes a form of weights, core's reference product opens it: right on each device, slower."
    yield ""
    yield "| product | devices | forms of weights |"
    yield "|---|---|---|"
    for dist, kernel in products:
        devices = ", ".join(sorted(kernel.devices))
        yield f"| {kernel.name} ({dist}) | {devices} | {', '.join(f'`{form}`' for form in kernel.forms)} |"


def attention_table(backends: Sequence[tuple[str, AttentionSpec]]) -> Iterator[str]:
    """Yield the lines of a table of attention backends, each with its distribution."""
    yield "| backend | devices | dtypes | KV cache | heads | blocks | features | rule |"
    yield "|---|---|---|---|---|---|---|---|"
    for dist, spec in sorted(backends, key=lambda one: one[1].name):
        sets = [_listed(values) for values in (spec.devices, spec.dtypes, spec.kv_dtypes)]
        heads = "any" if spec.head_dims is None else _sizes(sorted(spec.head_dims))
        rule = "yes" if spec.refine else ""
        cells = [f"`{spec.name}` ({dist})", *sets, heads, str(spec.block_multiple), _listed(spec.features), rule]
        yield f"| {' | '.join(cells)} |"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _sizes(sizes: Sequence[int]) -> str:
    """Return sizes as a list; of more than four, which have equal distances, the first, the second and the last."""
    steps = {after - before for before, after in pairwise(sizes)}
    if len(sizes) > 4 and len(steps) == 1:
        return f"{sizes[0]}, {sizes[1]}, ... {sizes[-1]}"
    return ", ".join(map(str, sizes))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it; `arguments` in place of those of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args(arguments).check:
        if not _PAGE.is_file() or _PAGE.read_text() != text:
            print("docs/supported.md is stale: run tools/supported.py", file=sys.stderr)
            return 1
        return 0
    _PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
