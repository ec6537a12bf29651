"""Quantization settings of a torchao checkpoint. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core_plugin_unquantized.names import listed, names_module

from core.api import PLAIN, CheckpointError, CheckpointInfo, LayerSite, ProbeResult, QuantRequest, Verdict, WeightForm
from core_plugin_torchao.layouts import Layout, UnreadError, kind_of, layout_of, mapping

BY_NAME = ("FqnToConfig", "ModuleFqnToConfig")
"""Configurations that have one for each module, or one of its parameters, by name."""

CODES = "_weight_qdata"
"""Suffix of the codes of a weight."""

_PARAMETER = re.compile(r"_(\w+)_qdata")
"""Pattern of the name that a parameter's codes have in its module."""


@dataclass(frozen=True, slots=True)
class TorchAOConfig:
    """Settings of a checkpoint; a layout of None is a plain weight.

    Attributes:
        usual: Layout of layers that nothing else is said of.
        named: Layouts by path of a module or its weight.
        patterns: Layouts by expressions that such a path matches as a whole; the first counts.
        plain: Modules that are not quantized.
        embeddings: Whether embeddings are quantized without being named.
        head: Whether the output projection is.
    """

    usual: Layout | None
    named: Mapping[str, Layout | None]
    patterns: tuple[tuple[re.Pattern[str], Layout | None], ...]
    plain: tuple[str, ...]
    embeddings: bool
    head: bool

    @staticmethod
    def read(given: Mapping[str, object]) -> TorchAOConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "Supported are what the README of core-plugin-torchao lists.")
        layouts = {name: None if one is None else layout_of(one) for name, one in _configs(given)}
        ends = given.get("include_input_output_embeddings") is True
        return TorchAOConfig(
            usual=layouts.pop("_default", None),
            named={name: one for name, one in layouts.items() if not name.startswith("re:")},
            patterns=tuple((re.compile(name[3:]), one) for name, one in layouts.items() if name.startswith("re:")),
            plain=listed(given, "modules_to_not_convert"),
            embeddings=ends,
            # transformers leaves the head alone by itself only where nothing is listed.
            head=ends or given.get("modules_to_not_convert") is not None,
        )

    def layout(self, site: LayerSite, part: str) -> Layout | None:
        """Return how a part of a layer is stored. Experts are parameters of a module, and quantized where named."""
        module, experts = site.module(part), site.kind == "experts"
        head, embedding = site.kind == "lm_head", site.kind == "embedding"
        if not (site.inner or embedding or (head and self.head)):
            return None
        names = [f"{module}.weight", module]
        if experts:  # `0.gate_up_proj` is of the parameter `gate_up_proj`
            parameter = part.partition(".")[2]
            names = [name for path in _in_memory(site.prefix) for name in (f"{path}.{parameter}", path)] + names
        return self.layout_of(names, None if experts or (embedding and not self.embeddings) else self.usual)

    def layout_of(self, names: Sequence[str], usual: Layout | None) -> Layout | None:
        """Return how what has these names is stored: a parameter, its module, and perhaps others around it."""
        if any(names_module(self.plain, name) for name in names):
            return None
        for name in names:
            if name in self.named:
                return self.named[name]
        return next((one for pattern, one in self.patterns if any(map(pattern.fullmatch, names))), usual)


def _in_memory(path: str) -> Iterator[str]:
    """Yield the path of a layer's experts in a file, and those that it may have in transformers' memory.

    Configurations say the latter; a file keeps the root and the name of the block of the family's first checkpoints.
    """
    root, layers, inside = path.partition("layers.")
    layer, _, block = inside.removesuffix(".experts").partition(".")
    yield path
    if layers and inside.endswith(".experts"):
        yield from (f"{one}{layers}{layer}.{around}.experts" for one in (root, "model.") for around in (block, "mlp"))


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this torchao checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse what is not understood, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the forms of codes and the plain one, each with the number of its matrices."""
    config, found = TorchAOConfig.read(checkpoint.quantization_config), {PLAIN: 0}
    for name, (shape, _) in checkpoint.tensors.items():
        module, _, suffix = name.rpartition(".")
        codes = _PARAMETER.fullmatch(suffix)
        names = [f"{module}.{codes[1]}", module] if codes else []
        layout = config.layout_of(names, config.usual if suffix == CODES else None) if codes else None
        if layout is not None or (suffix == "weight" and len(shape) == 2):
            form = PLAIN if layout is None else layout.form
            found[form] = found.get(form, 0) + 1
    return {form: count for form, count in found.items() if count} or {PLAIN: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    if isinstance(given.get("quant_type"), str):  # of earlier versions of transformers, whose files were pickles
        return [f"quant_type {given['quant_type']!r:.60} by name, not a configuration"]
    reasons = []
    for name, one in _configs(given):
        try:
            if one is not None:
                layout_of(one)
            re.compile(name.removeprefix("re:") if name.startswith("re:") else "")
        except (UnreadError, re.error) as error:
            reasons.append(str(error) if name == "_default" else f"{name}: {error}")
    return reasons


def _configs(given: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the names of modules and their configurations; `_default` is for all others."""
    whole = mapping(given.get("quant_type")).get("default")
    if kind_of(whole) not in BY_NAME:
        yield "_default", mapping(whole)
        return
    data = mapping(mapping(whole).get("_data"))
    yield from mapping(data.get("fqn_to_config") or data.get("module_fqn_to_config")).items()
