"""Quantization settings of a checkpoint in a microscaling format. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from core_plugin_unquantized.names import listed, names_module
from pydantic import BaseModel, ConfigDict, Field

from core.api import (
    PLAIN,
    CheckpointError,
    CheckpointInfo,
    LayerSite,
    ProbeResult,
    QuantRequest,
    Verdict,
    WeightForm,
)

RUN = 32
"""Inputs that share a scale, in every one of these formats."""

FP4 = WeightForm(codes="e2m1", inputs=RUN, scale="e8m0")
FP8 = WeightForm(codes="float8_e4m3fn", inputs=RUN, scale="e8m0")

_QUARK_CODES = {"fp4": FP4, "fp8_e4m3": FP8}
_QUARK_ACTIVATIONS = {"fp4": "e2m1:32", "fp8_e4m3": "float8:32"}
_QUARK_SCALES: Mapping[str, Any] = {"qscheme": "per_group", "group_size": RUN, "scale_format": "e8m0"}


class MXOptions(BaseModel):
    """Options of the method `mx`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal["checkpoint", "as_is"] = Field(
        "checkpoint", description="checkpoint: rounded as the checkpoint says; as_is: left as they are."
    )


@dataclass(frozen=True, slots=True)
class MXConfig:
    """Settings of a checkpoint.

    Attributes:
        form: Of the layers that are quantized.
        plain: Modules that are not; a `*` stands for anything.
        layers: Names with stars -> form of the modules that differ.
        blocks: Whether codes have a dimension for each run, as gpt-oss has them: `weight_blocks` and `weight_scales`.
    """

    form: WeightForm
    plain: tuple[str, ...]
    layers: Mapping[str, WeightForm]
    blocks: bool

    @staticmethod
    def read(given: Mapping[str, object]) -> MXConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "Supported are MXFP4 and MXFP8 with a power of two for 32 inputs.")
        if given.get("quant_method") == "quark":
            whole, own = _mapping(given.get("global_quant_config")), _mapping(given.get("layer_quant_config"))
            layers = {name: _quark_form(_mapping(one)) for name, one in own.items()}
            return MXConfig(_quark_form(whole), listed(given, "exclude"), layers, blocks=False)
        blocks = given.get("quant_method") == "mxfp4"
        return MXConfig(FP4 if blocks else FP8, listed(given, "modules_to_not_convert"), {}, blocks)

    def form_of(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of a part: the plain one where it is not quantized."""
        module = site.module(part)
        if not site.inner or (self.blocks and site.kind != "experts"):
            return PLAIN
        if names_module(self.plain, module):
            return PLAIN
        return next((form for name, form in self.layers.items() if fnmatchcase(module, name)), self.form)


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this MX checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse what is not understood, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    form = MXConfig.read(checkpoint.quantization_config).form
    ends = [name.rpartition(".")[2] for name, (shape, _) in checkpoint.tensors.items() if len(shape) >= 2]
    scales = sum(end.endswith(("weight_scale", "_scales")) for end in ends)
    whole = sum(end.endswith(("weight", "_blocks")) for end in ends)
    found = {form: scales, PLAIN: whole - scales}
    return {one: count for one, count in found.items() if count > 0} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    if given.get("quant_method") != "quark":
        return []
    layers = _mapping(given.get("layer_quant_config"))
    groups = {"global_quant_config": given.get("global_quant_config"), **layers}
    reasons = [f"{name}: {reason}" for name, group in groups.items() for reason in _of_group(_mapping(group))]
    if _mapping(given.get("layer_type_quant_config")):
        reasons.append("settings by type of layer (layer_type_quant_config)")
    if _mapping(given.get("export")).get("pack_method", "order") not in ("order", "reorder"):
        reasons.append(f"pack_method {_mapping(given['export'])['pack_method']!r:.60}")
    return reasons


def _of_group(group: Mapping[str, Any]) -> list[str]:
    weight, activations = _mapping(group.get("weight")), group.get("input_tensors")
    reasons = _of_numbers("weights", weight)
    reasons += _of_numbers("input_tensors", _mapping(activations)) if activations else []
    if activations and not _mapping(activations).get("is_dynamic", True):
        reasons.append("input_tensors with fixed scales")
    reasons += [f"{name} are quantized" for name in ("output_tensors", "bias") if group.get(name)]
    return reasons


def _of_numbers(what: str, given: Mapping[str, Any]) -> list[str]:
    reasons = [
        f"{what} with {key} {given.get(key)!r:.60}, not {value!r}"
        for key, value in _QUARK_SCALES.items()
        if given.get(key) != value
    ]
    if given.get("dtype") not in _QUARK_CODES:
        reasons.append(f"{what} of {given.get('dtype')!r:.60}, not {' or '.join(map(repr, _QUARK_CODES))}")
    return reasons


def _quark_form(group: Mapping[str, Any]) -> WeightForm:
    form = _QUARK_CODES[group["weight"]["dtype"]]
    inputs = group.get("input_tensors")
    return form.replace(activations=_QUARK_ACTIVATIONS[inputs["dtype"]]) if inputs else form


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
