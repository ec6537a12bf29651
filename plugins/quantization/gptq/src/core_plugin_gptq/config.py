"""Quantization settings of a GPTQ checkpoint. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core_plugin_unquantized.auto_round import data_type, inside_blocks, own_settings, packing_of
from core_plugin_unquantized.names import listed

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

BITS = (2, 3, 4, 8)
FORMATS = ("gptq", "gptq_v2")
PACKINGS = ("auto_round:auto_gptq", "auto_round:gptq", "auto_gptq", "gptq")
"""Those of AutoRound that are the same."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a layer.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        zero_offset: What is added to stored zero points.
        symmetric: Whether every zero point is the middle of the codes, 8 of 16.
        ordered: Whether inputs belong to groups in any order (`desc_act`).
    """

    bits: int
    group_size: int
    zero_offset: int
    symmetric: bool
    ordered: bool

    @staticmethod
    def of(given: Mapping[str, object]) -> Settings:
        """Read settings in which nothing is wrong."""
        size = int(str(given.get("group_size", 128)))
        return Settings(
            bits=int(str(given.get("bits", 4))),
            group_size=size,
            zero_offset=0 if given.get("checkpoint_format") == "gptq_v2" else 1,
            symmetric=given.get("sym") is True,
            ordered=bool(given.get("desc_act")) and size != -1,
        )

    @property
    def form(self) -> WeightForm:
        """Form of the codes."""
        return WeightForm(
            codes="int",
            bits=self.bits,
            inputs=max(self.group_size, 0),
            zeros=not self.symmetric,
            ordered=self.ordered,
        )


@dataclass(frozen=True, slots=True)
class GPTQConfig:
    """Settings of a checkpoint.

    Attributes:
        usual: Of layers that nothing else is said of.
        layers: Regular expressions that the paths of modules begin with, and their settings; None: they are plain.
        head: Whether the output projection is quantized.
        plain: Parts of the module paths of layers that are not quantized.
        given: Its `quantization_config`.
    """

    usual: Settings
    layers: tuple[tuple[re.Pattern[str], Settings | None], ...]
    head: bool
    plain: tuple[str, ...]
    given: Mapping[str, object]

    @staticmethod
    def read(given: Mapping[str, object]) -> GPTQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise CheckpointError(
                "CORE-M160",
                f"this GPTQ checkpoint cannot be read: {'; '.join(reasons)}.",
                hint="Supported are 2, 3, 4 and 8 bits in the formats 'gptq' and 'gptq_v2'.",
            )
        return GPTQConfig(
            usual=Settings.of(given),
            layers=tuple((re.compile(name), _settings(given, own)) for name, own in _own(given).items()),
            head=given.get("lm_head") is True or "lm_head" in own_settings(given),
            plain=listed(given, "modules_to_not_convert"),
            given=given,
        )

    def settings(self, site: LayerSite, part: str) -> Settings | None:
        """Return the settings of a part of a layer; None where it is plain."""
        module = site.module(part)
        known = site.inner or (self.head and site.kind == "lm_head")
        if not known or any(name in module for name in self.plain):
            return None
        own = [own for name, own in self.layers if name.match(module)]
        return own[0] if own else self.usual if inside_blocks(self.given, module) else None


def _own(given: Mapping[str, object]) -> dict[str, object]:
    """Return what differs: regular expressions, as `re.match` takes them, and the settings; False: plain.

    GPTQ says so in `dynamic`: `-:` before an expression leaves layers plain, `+:` or nothing changes settings.
    AutoRound says so in `extra_config`, by names: layers of 16 bits are plain.
    """
    found: dict[str, object] = {}
    for name, own in _mapping(given.get("dynamic")).items():
        found[name.removeprefix("+:").removeprefix("-:")] = False if name.startswith("-:") else own
    for name, own in own_settings(given).items():
        found[f"(?:{name})$"] = own
    return found


def _settings(given: Mapping[str, object], own: object) -> Settings | None:
    return None if own is False else Settings.of({**given, **_mapping(own)})


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse other bit widths and formats while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the forms of codes and the plain one, each with the number of its matrices."""
    config, found = GPTQConfig.read(checkpoint.quantization_config), {PLAIN: 0}
    for name, (shape, _) in checkpoint.tensors.items():
        module, _, suffix = name.rpartition(".")
        if len(shape) != 2 or suffix not in ("qweight", "weight"):
            continue
        kind = "lm_head" if module.endswith("lm_head") else "linear"
        own = config.settings(LayerSite(kind, module, 0, (("", 0),)), "") or config.usual
        form = own.form if suffix == "qweight" else PLAIN
        found[form] = found.get(form, 0) + 1
    return {one: count for one, count in found.items() if count} or {config.usual.form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    form, packing = given.get("checkpoint_format") or "gptq", packing_of(given)
    reasons = [
        None if form in FORMATS else f"format {form!r:.60}, not {' or '.join(map(repr, FORMATS))}",
        "weights in marlin's order ('is_marlin_format')" if given.get("is_marlin_format") else None,
    ]
    if packing and packing not in PACKINGS:
        reasons.append(f"packing_format {packing!r:.60}, not {' or '.join(map(repr, PACKINGS))}")
    if packing and "fp" in data_type(given):
        reasons.append(f"weights of {data_type(given)!r:.60}, not integers")
    reasons += _of_settings(given)
    for name, own in _own(given).items():
        reasons += [_of_pattern(name), *(f"{name}: {one}" for one in _of_settings({**given, **_mapping(own)}))]
    return [reason for reason in reasons if reason]


def _of_settings(given: Mapping[str, object]) -> list[str]:
    bits, size = given.get("bits", 4), given.get("group_size", 128)
    reasons = [] if type(bits) is int and bits in BITS else [f"weights of {bits!r:.60} bits, not 2, 3, 4, 8"]
    if type(size) is not int or not (size > 0 or size == -1):
        reasons.append(f"groups of {size!r:.60} inputs")
    return reasons


def _of_pattern(name: str) -> str | None:
    try:
        re.compile(name)
    except re.error as error:
        return f"{name!r:.60} is no regular expression ({error})"
    return None
