"""All variants, and the goals of shapes: shapes x forms of the weights x engines x instruction sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from benchmarks.compare.cases import DEMO_VARIANTS, Goal, Variant
from benchmarks.compare.isa import CAPS


@dataclass(frozen=True)
class Form:
    """A way to store weights.

    Attributes:
        name: End of the variants' names; empty: bfloat16.
        files: Engine -> the format that it reads, of `models.FORMATS`: those named are compared.
    """

    name: str
    precision: str
    files: Mapping[str, str]


def _gguf(name: str, precision: str) -> Form:
    return Form(name, precision, dict.fromkeys(("core", "llama"), f"gguf-{name}"))


def _checkpoint(name: str, precision: str) -> Form:
    return Form(name, precision, dict.fromkeys(("core", "vllm"), name))


BF16 = Form("", "bf16", {"core": "bf16", "vllm": "bf16", "llama": "gguf-bf16"})
Q4_0 = _gguf("q4_0", "4-bit")
FILES = (
    _gguf("q8_0", "int8"),
    _gguf("q6_k", "6-bit"),
    Q4_0,
    *(_gguf(name, "4-bit") for name in ("q4_k_m", "iq4_nl", "iq4_xs")),
)
FORMS = (BF16, _checkpoint("w8a8", "int8"), *FILES, _checkpoint("awq", "4-bit"))


@dataclass(frozen=True)
class Subject:
    """What is compared on a shape."""

    forms: Sequence[Form] = FORMS
    groups: tuple[str, ...] = ("offline", "streams", "prompts", "contexts", "startup", "server")
    isas: Sequence[str] = ("", *CAPS)


_CUT = Subject(forms=(BF16, Q4_0), groups=("offline",), isas=("",))

SUBJECTS: Mapping[str, Subject] = {
    "llama-3.2-1b": Subject(),
    "llama-3.2-3b": Subject(),
    "qwen3-4b": Subject(),
    "qwen3-8b-12l": Subject(),
    # In bfloat16 it takes 16 GB: as much as the machines this runs on have beside a cache of the file.
    "qwen3-8b": Subject(forms=FILES),
    "gemma-3-1b": Subject(),
    "qwen3-moe": Subject(forms=(BF16, *FILES)),
    # Its attention to latents is compared behind long texts.
    "deepseek-lite": replace(_CUT, groups=("offline", "contexts")),
    "qwen3-next": _CUT,
}
"""Shape, of `shapes.SHAPES` -> what is compared on it."""


def _of(shape: str, subject: Subject) -> Iterator[Variant]:
    for isa in subject.isas:
        for form in subject.forms:
            for engine, file in form.files.items():
                name = "-".join(part for part in (engine, shape, form.name) if part) + (f"@{isa}" if isa else "")
                kv_mib = 1024 if engine == "vllm" else 192
                model = f"{shape}:{file}"
                yield Variant(name, engine, form.precision, model, kv_mib=kv_mib, groups=subject.groups, isa=isa)


SHAPE_VARIANTS = tuple(variant for shape, subject in SUBJECTS.items() for variant in _of(shape, subject))
VARIANTS = (*DEMO_VARIANTS, *SHAPE_VARIANTS)
"""In the order of a round: those that are compared stand next to each other."""


def matches(variant: Variant, patterns: Sequence[str]) -> bool:
    """Whether a pattern (`*`, `?`, `[...]`) is that of a variant's name, or of what it is named with.

    Those are the engine of a variant of the demo model, and the shape of another one, with `@` and the instruction sets
    if they are bounded: a shape's name alone means all that the processor has.
    """
    other = variant.subject or variant.engine
    return any(fnmatchcase(variant.name, pattern) or fnmatchcase(other, pattern) for pattern in patterns)


def chosen(patterns: Sequence[str]) -> list[Variant]:
    """Return the variants that match; without patterns those of the demo model, since shapes are gigabytes of files."""
    return [one for one in VARIANTS if matches(one, patterns)] if patterns else list(DEMO_VARIANTS)


def _goals(shape: str) -> list[Goal]:
    """Return what core is to reach on a shape."""
    ours, vllm, llama = (f"core-{shape}",), (f"vllm-{shape}",), (f"llama-{shape}",)
    four_bit = (f"core-{shape}-q4_0",), (f"llama-{shape}-q4_0",)
    return [
        Goal("(i) bf16, beside vLLM", "decode", 1.25, ours, vllm),
        Goal("(i) bf16, beside llama.cpp", "decode", 1.0, ours, llama),
        Goal("(i) Q4_0", "decode", 1.2, *four_bit),
        Goal("(ii) bf16, beside the best", "batch", 1.3, ours, (*vllm, *llama)),
        Goal("(iii) bf16, beside the best", "prefill", 1.2, ours, (*vllm, *llama)),
    ]


SHAPE_GOALS = {shape: _goals(shape) for shape in ("qwen3-moe", "deepseek-lite", "qwen3-next")}
