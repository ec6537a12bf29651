"""Write docs/gpu-selection.md: which attention backend and which kernels each card gets, and why not the others.

The cards are those of `tools/gpu_cards.toml`, described as their platforms' probes describe them; the plugins are those
of this checkout; the choice is made by the code that makes it at every start. With `--check` nothing is written: exit
status 1 means stale.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from core_plugin_accelerator import found, points_of
from gpu_experts import experts_for, experts_table
from gpu_tables import alike, preferences_table, why_not, why_not_table

from core.api import AttentionRequest, KernelRequest, PlatformSpec, ProbeResult
from core.api.descriptors import KernelSpec
from core.api.errors import CoreError
from core.api.forms import WeightForm
from core.api.kernels import OPS
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.plugins.kinds import ATTENTION
from core.selection.attention import attention_verdict
from core.selection.foundation import KernelPlace, refined
from core.selection.kernels import plan_kernels
from core.selection.report import SelectionReport
from core.selection.select import Selector

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "gpu-selection.md"
_PLATFORMS = ("cuda", "rocm", "xpu")
_GIB = 2**30

_LATENT: dict[str, Any] = {"head_dim": 192, "num_heads": 128, "num_kv_heads": 128, "latents": {(512, 64)}}

MODELS: dict[str, dict[str, Any]] = {
    "Llama 3, Qwen3": {"head_dim": 128},
    "Gemma 3 (windows)": {"head_dim": 256, "features": {"sliding_window"}},
    "Gemma 2 (soft cap)": {"head_dim": 256, "features": {"sliding_window", "softcap"}},
    "gpt-oss (sinks)": {"head_dim": 64, "features": {"sliding_window", "sinks"}},
    "Llama 4 (chunks)": {"head_dim": 128, "features": {"chunked"}},
    "MPT (ALiBi)": {"head_dim": 128, "features": {"alibi"}},
    "DeepSeek V3 (latents)": {**_LATENT, "features": {"latent"}},
    "DeepSeek V3, blocks of 64": {**_LATENT, "features": {"latent"}, "block_size": 64},
    "DeepSeek V3.2 (picks)": {**_LATENT, "features": {"latent", "picks"}},
    "MiniCPM3 (small latents)": {"head_dim": 96, "num_heads": 40, "features": {"latent"}, "latents": {(256, 32)}},
    "Llama 3, float8 cache": {"head_dim": 128, "kv_dtype": "float8_e4m3fn"},
}
"""What models ask of a backend, besides bfloat16."""

FORMS: dict[str, WeightForm] = {
    "plain numbers": WeightForm(),
    "float8 in blocks (DeepSeek, Qwen)": WeightForm(
        codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128"
    ),
    "float8, by outputs": WeightForm(codes="float8_e4m3fn", activations="float8:token"),
    "int8 by int8": WeightForm(codes="int", bits=8, activations="int8:token"),
    "AWQ": WeightForm(codes="int", bits=4, inputs=128, zeros=True),
    "GPTQ, act-order": WeightForm(codes="int", bits=4, inputs=128, zeros=True, ordered=True),
    "bitsandbytes": WeightForm(codes="nf4", inputs=64),
    "MXFP4": WeightForm(codes="e2m1", inputs=32, scale="e8m0"),
    "NVFP4": WeightForm(codes="e2m1", inputs=16, scale="e4m3", activations="e2m1:16"),
    "MXFP8": WeightForm(codes="float8_e4m3fn", inputs=32, scale="e8m0", activations="float8:32"),
    **{f"GGUF {kind}": WeightForm(codes=f"gguf:{kind}") for kind in ("Q4_0", "Q4_K", "Q6_K", "IQ4_XS", "IQ2_XS")},
}
"""Forms of weights, as checkpoints have them."""


class Device(NamedTuple):
    """A card, as a platform's probe describes it."""

    platform: PlatformSpec
    probe: ProbeResult

    @property
    def title(self) -> str:
        """Name and architecture."""
        return f"{self.probe.facts['name']} ({self.probe.facts['arch']})"


def devices() -> list[Device]:
    """Return every card of the table."""
    listed = tomllib.loads((_ROOT / "tools" / "gpu_cards.toml").read_text())
    return [_device(name, dict(row)) for name in _PLATFORMS for row in listed[name]]


def _device(platform: str, row: dict[str, Any]) -> Device:
    package = f"core_plugin_{platform}"
    memory = row.pop("gib") * _GIB
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    card = import_module(f"{package}.probe").card(memory=memory, **given)
    spec = getattr(import_module(f"{package}.manifest"), platform.upper())
    return Device(spec, found([card], {}, partial(points_of, package)))


@cache
def catalogue() -> Catalogue:
    """Return the plugins of this checkout."""
    entries = []
    for path in sorted(_ROOT.glob("plugins/*/*/pyproject.toml")):
        project = tomllib.loads(path.read_text())["project"]
        for group, points in project.get("entry-points", {}).items():
            entries += [
                Entry(group, name, project["name"], project["version"], value) for name, value in points.items()
            ]
    return Catalogue(entries)


def selector(device: Device, *, libraries: bool = False) -> Selector:
    """Return what chooses for a card; with `libraries`, as if every library that a plugin is for were installed."""
    preferences = dict(device.platform.preferences) | dict(device.probe.preferences)
    return Selector(catalogue(), Hooks(), preferences=preferences, usable=not libraries)


def backend_for(device: Device, asked: dict[str, Any], *, libraries: bool = False) -> SelectionReport:
    """Choose the attention backend of a model on a card; return the report, with an error if none can serve."""
    request = AttentionRequest(
        **{
            "device_type": device.platform.device_type,
            "dtype": "bfloat16",
            "kv_dtype": "bfloat16",
            "num_heads": 32,
            "num_kv_heads": 8,
            "block_size": device.platform.block_size,
            **asked,
        }
    )
    chooses = selector(device, libraries=libraries)
    with contextlib.suppress(CoreError):  # the report has it
        chooses.choose(ATTENTION, check=lambda one: attention_verdict(one, request, device.probe))
    return chooses.reports[-1]


def kernels_for(device: Device) -> dict[str, list[str]]:
    """Return operation -> the kernels that layers may be given on a card, best first."""
    place = KernelPlace(device.platform.device_type, "bfloat16", device.probe)
    given: dict[str, list[str]] = {op: [] for op in sorted(OPS)}
    for one in plan_kernels(selector(device), [], place):
        if not one.reference_only:
            given.setdefault(one.descriptor.to_dict()["op"], []).append(one.entry.name)
    return given


def products_for(device: Device) -> dict[str, str]:
    """Return form of weights -> what multiplies with it on a card, in linear layers, in embeddings and in experts."""
    chooses = selector(device)
    place = KernelPlace(device.platform.device_type, "bfloat16", device.probe)
    planned = plan_kernels(chooses, [], place, dict.fromkeys(FORMS.values(), 0))
    named = {f"weights {form.shown}": name for name, form in FORMS.items()}
    found = {named[one.subject]: one.how for one in chooses.reports if one.subject in named}
    return {name: f"{how}, experts: {_experts_for(FORMS[name], planned, place)}" for name, how in found.items()}


def _experts_for(form: WeightForm, planned: Sequence[Candidate], place: KernelPlace) -> str:
    """Return the first product that takes experts' weights of a form, whatever their sizes."""
    request = KernelRequest(op="experts_in", device=place.device, dtype=place.dtype, form=form.key)
    for one in planned:
        spec = one.spec(KernelSpec)
        fits = spec.op == request.op and spec.replace(dims={}).check(request).ok
        if fits and refined(one, spec.refine, request, place.probe).ok:
            return one.entry.name
    return "reference"


def experts_of(every: Sequence[Device], *, libraries: bool) -> list[dict[str, SelectionReport]]:
    """Return for each card: form of weights -> what multiplies with it in experts, and why not the others."""
    found = []
    for device in every:
        place = KernelPlace(device.platform.device_type, "bfloat16", device.probe)
        found.append(experts_for(selector(device, libraries=libraries), place, FORMS))
    return found


def page() -> str:
    """Return the text of the page."""
    every = devices()
    return "\n".join(
        [
            "# What each GPU gets",
            "",
            "Written by `tools/gpu_selection.py` from the descriptors of this repository's distributions: the choice",
            "that a start makes, for cards as their drivers describe them. It says what is chosen, not how fast it is:",
            "[what an H100 did](benchmarks-gpu.md). How plugins are chosen:",
            "[selection](selection.md). What a machine really gets: `core plugins why MODEL`.",
            "",
            "## Cards",
            "",
            *_cards(every),
            "",
            "## Attention, in bfloat16",
            "",
            "As this repository's distributions are installed, without the libraries that some of them are for:",
            "",
            *_attention(every),
            "",
            "If all these libraries were installed (each card would have its own):",
            "",
            *_attention(every, libraries=True),
            "",
            "### Why not the others",
            "",
            "What speaks against each where its library is installed.",
            "",
            *_reasons(every),
            "",
            "## Operations, in bfloat16",
            "",
            "*Reference*: core's own form in plain torch. Sizes decide further when layers are built.",
            "",
            *_operations(every),
            "",
            "## Weights, in bfloat16",
            "",
            "What multiplies with weights of each form in linear layers, in embeddings and output projections, and in",
            "experts (`experts_in`; `experts_out` likewise). The *reference* opens them to bfloat16 when loaded.",
            "",
            *_products(every),
            "",
            "## Experts, in bfloat16",
            "",
            "What multiplies with experts' weights of each form, first hidden states (`experts_in`), then what their",
            "activation gives (`experts_out`); and the same if all libraries were installed. The *reference* opens",
            "weights to bfloat16, and its products wait for the device.",
            "",
            *_experts(every),
            "",
            "### Why not the others",
            "",
            "What speaks against each where its library is installed.",
            "",
            *_experts_reasons(every),
            "",
            "## What cards prefer",
            "",
            "Points that platforms give to other plugins (`preferences.toml`); what is not installed is not chosen.",
            "",
            *preferences_table(_PLATFORMS),
            "",
        ]
    )


def _cards(every: Sequence[Device]) -> Iterator[str]:
    yield "| card | platform | memory | features |"
    yield "|---|---|---|---|"
    for device in every:
        probe = device.probe
        features = ", ".join(f"`{name}`" for name in sorted(probe.features - {"own_memory", device.platform.name}))
        memory = int(probe.facts["memory"]) // _GIB
        yield f"| {device.title} | {device.platform.name} | {memory} GiB | {features} |"


def _attention(every: Sequence[Device], *, libraries: bool = False) -> Iterator[str]:
    yield f"| card | {' | '.join(MODELS)} |"
    yield "|---|" + "---|" * len(MODELS)
    for titles, cells in alike(
        [(device.title, [_chosen(device, asked, libraries) for asked in MODELS.values()]) for device in every]
    ):
        yield f"| {_shown(titles, every)} | {' | '.join(cells)} |"


def _chosen(device: Device, asked: dict[str, Any], libraries: bool) -> str:
    report = backend_for(device, asked, libraries=libraries)
    return "none" if report.chosen is None else f"`{report.chosen.entry.name}`"


def _reasons(every: Sequence[Device]) -> Iterator[str]:
    """Yield what speaks against each backend, those with the same reasons together."""
    told: dict[tuple[str, str], list[str]] = {}
    for device in every:
        for model, asked in MODELS.items():
            report = backend_for(device, asked, libraries=True)
            for row in report.rows:
                if row.state != "chosen":
                    told.setdefault((row.name, why_not(row)), []).append(f"{device.platform.name}: {model}")
    yield from why_not_table("backend", told, len(MODELS))


def _experts(every: Sequence[Device]) -> Iterator[str]:
    both = (experts_of(every, libraries=False), experts_of(every, libraries=True))
    return experts_table([device.title for device in every], *both, FORMS, lambda titles: _shown(titles, every))


def _experts_reasons(every: Sequence[Device]) -> Iterator[str]:
    told: dict[tuple[str, str], list[str]] = {}
    for device, reports in zip(every, experts_of(every, libraries=True), strict=True):
        for form, report in reports.items():
            for row in report.rows:
                if row.state != "chosen" and row.dist != "core":
                    told.setdefault((row.name, why_not(row)), []).append(f"{device.platform.name}: {form}")
    yield from why_not_table("kernel", told, len(FORMS))


def _operations(every: Sequence[Device]) -> Iterator[str]:
    given = [(device.title, kernels_for(device)) for device in every]
    ops = sorted({op for _, kernels in given for op in kernels})
    yield "| operation | kernels, best first | cards |"
    yield "|---|---|---|"
    for op in ops:
        for titles, names in alike([(title, kernels.get(op, [])) for title, kernels in given]):
            yield f"| `{op}` | {', '.join(f'`{name}`' for name in names) or 'reference'} | {_shown(titles, every)} |"


def _products(every: Sequence[Device]) -> Iterator[str]:
    given = [(device.title, products_for(device)) for device in every]
    yield "| weights | form | served by | cards |"
    yield "|---|---|---|---|"
    for name, form in FORMS.items():
        for titles, (how,) in alike([(title, [served[name]]) for title, served in given]):
            yield f"| {name} | `{form.shown}` | {how} | {_shown(titles, every)} |"


def _shown(titles: str, every: Sequence[Device]) -> str:
    return "all" if titles.count(", ") + 1 == len({device.title for device in every}) else titles


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = page()
    if parser.parse_args().check:
        if not _PAGE.is_file() or _PAGE.read_text() != text:
            print("docs/gpu-selection.md is stale: run tools/gpu_selection.py", file=sys.stderr)
            return 1
        return 0
    _PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
