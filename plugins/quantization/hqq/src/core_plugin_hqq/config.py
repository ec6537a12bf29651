"""Quantization settings of an HQQ checkpoint. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core_plugin_unquantized.names import listed, names_module

from core.api import PLAIN, CheckpointError, CheckpointInfo, LayerSite, ProbeResult, QuantRequest, Verdict, WeightForm

PACKED = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}
"""Codes in an element by their bits: of a byte, for three bits of an int32."""

_SHARED = "weight_quant_params"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a layer.

    Attributes:
        size: Values that share a scale; 0: those of an output (axis 1) or of an input (axis 0).
        axis: 1: groups are runs of the weight's values, row after row; 0: they are columns of these values in `size`
            rows, so that a group is about one input.
    """

    bits: int
    size: int
    axis: int

    @staticmethod
    def of(given: Mapping[str, Any]) -> Settings:
        """Read settings in which nothing is wrong."""
        own = _mapping(given.get(_SHARED))
        return Settings(own.get("nbits", 4), own.get("group_size") or 0, own.get("axis", 0))

    def form(self, inputs: int) -> WeightForm:
        """Return the form of a weight: that of groups which no row of core's forms has is nobody else's."""
        if self.axis == 0 or (self.size and inputs % self.size):
            return WeightForm(codes=f"hqq:{self.bits}bit")
        return WeightForm(codes="int", bits=self.bits, inputs=self.size, zeros=True)

    def groups(self, outputs: int, inputs: int) -> tuple[int, int]:
        """Return the size of the matrix of codes whose rows (axis 1) or columns (axis 0) are groups."""
        if not self.size:
            return outputs, inputs
        count = outputs * inputs // self.size
        return (count, self.size) if self.axis == 1 else (self.size, count)


@dataclass(frozen=True, slots=True)
class HQQConfig:
    """Settings of a checkpoint.

    Attributes:
        usual: Of all layers; None: those that `tags` does not name are plain.
        tags: Settings by what is left of a module's path without `model`, `layers` and numbers.
        plain: Modules, or such tags, that are not quantized.
    """

    usual: Settings | None
    tags: Mapping[str, Settings]
    plain: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> HQQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "Supported are 1, 2, 3, 4 and 8 bits with scales in float.")
        settings = {name: Settings.of(one) for name, one in _settings(given)}
        return HQQConfig(settings.pop("", None), settings, listed(given, "skip_modules"))

    def settings(self, site: LayerSite, part: str) -> Settings | None:
        """Return the settings of a part of a layer; None where it is plain."""
        return self.settings_of(site.module(part)) if site.inner or site.kind == "lm_head" else None

    def settings_of(self, module: str) -> Settings | None:
        """Return the settings of a linear module."""
        tag = ".".join(one for one in module.split(".") if one not in ("model", "layers") and not one.isnumeric())
        if tag in self.plain or names_module(self.plain, module):
            return None
        return self.tags.get(tag, self.usual)


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this HQQ checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse what is not understood, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the forms of codes and the plain one, each with the number of its matrices."""
    config, found = HQQConfig.read(checkpoint.quantization_config), {PLAIN: 0}
    for name, (shape, _) in checkpoint.tensors.items():
        module, _, suffix = name.rpartition(".")
        settings = config.settings_of(module) if suffix == "W_q" else None
        if settings is not None or (suffix == "weight" and len(shape) == 2):
            form = PLAIN if settings is None else settings.form(settings.size)
            found[form] = found.get(form, 0) + 1
    return {form: count for form, count in found.items() if count} or {PLAIN: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    reasons = [] if _mapping(given.get("quant_config")) else ["no quant_config"]
    for name, one in _settings(given):
        reasons += [f"{name}: {reason}" if name else reason for reason in _of_settings(one)]
    return reasons


def _settings(given: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the settings by tag; those of all layers without one."""
    whole = _mapping(given.get("quant_config"))
    if _SHARED in whole:
        yield "", whole
        return
    for name, one in whole.items():
        yield name, _mapping(one)


def _of_settings(given: Mapping[str, Any]) -> Iterator[str]:
    own = _mapping(given.get(_SHARED))
    bits, size, axis = own.get("nbits", 4), own.get("group_size"), own.get("axis", 0)
    if bits not in PACKED:
        yield f"weights of {bits!r:.60} bits, not {', '.join(map(str, sorted(PACKED)))}"
    if size is not None and (type(size) is not int or size < 1):
        yield f"groups of {size!r:.60} values"
    if axis not in (0, 1):
        yield f"axis {axis!r:.60}, not 0 or 1"
    if own.get("channel_wise") is False:
        yield "one scale for all of a weight (channel_wise)"
    if given.get("offload_meta"):
        yield "scales and zero points in one tensor (offload_meta)"
    for key in ("scale_quant_params", "zero_quant_params"):
        if given.get(key):
            yield f"scales that are quantized themselves ({key})"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
