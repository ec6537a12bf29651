"""Quantization settings of an AWQ checkpoint. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from core_plugin_unquantized.auto_round import METHODS, data_type, inside_blocks, own_settings, packing_of
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

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output, of eight, that each nibble of a word belongs to in the layout `gemm`, the lowest nibble first."""

FILLED = ("gemv", "gemv_fast")
"""Layouts in which groups are filled up to whole words of zero points."""

LAYOUTS = ("gemm", *FILLED)
FILLED_SIZES = (32, 64, 128)
"""Groups of these layouts: the sizes that their kernels have."""

PACKINGS = ("auto_round:auto_awq", "auto_round:awq", "auto_awq", "awq")
"""Those of AutoRound that are the layout `gemm`."""


@dataclass(frozen=True, slots=True)
class AWQConfig:
    """Settings of a checkpoint.

    Attributes:
        group_size: Inputs that share a scale; -1 for all of them.
        layout: One of `LAYOUTS`.
        plain: Parts of the module paths of layers that are not quantized.
        given: Its `quantization_config`.
        layers: Expressions that the paths of modules match from the beginning, and their group sizes; None: plain.
    """

    group_size: int
    layout: str
    plain: tuple[str, ...]
    given: Mapping[str, object]
    layers: tuple[tuple[re.Pattern[str], int | None], ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> AWQConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            hint = "Read are 4 bits in the layouts 'gemm' (groups of any size, -1: all inputs), 'gemv' and 'gemv_fast'."
            raise contradicted("; ".join(reasons), hint)
        sizes = {name: None if own is False else int(str(_group_size(own))) for name, own in _own(given).items()}
        return AWQConfig(
            group_size=int(str(_group_size(given))),
            layout=str(given.get("version") or "gemm").lower() if not packing_of(given) else "gemm",
            plain=listed(given, "modules_to_not_convert"),
            given=given,
            layers=tuple((re.compile(f"(?:{name})$"), size) for name, size in sizes.items()),
        )

    def size(self, site: LayerSite, part: str) -> int | None:
        """Return the group size of a part of a layer; None where it is plain."""
        module = site.module(part)
        if any(name in module for name in self.plain):
            return None
        own = next((size for name, size in self.layers if name.match(module)), 0)
        if own != 0:
            return own if site.inner or site.kind == "lm_head" else None
        return self.group_size if site.inner and inside_blocks(self.given, module) else None


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this AWQ checkpoint cannot be read: {how}.", hint=hint)


def form_of(size: int) -> WeightForm:
    """Return the form of layers with groups of so many inputs."""
    return WeightForm(codes="int", bits=4, inputs=max(size, 0), zeros=True)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse other bit widths and layouts while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the forms of codes and the plain one, each with the number of its matrices."""
    config, found = AWQConfig.read(checkpoint.quantization_config), {PLAIN: 0}
    for name, (shape, _) in checkpoint.tensors.items():
        module, _, suffix = name.rpartition(".")
        if len(shape) != 2 or suffix not in ("qweight", "weight"):
            continue
        kind = "lm_head" if module.endswith("lm_head") else "linear"
        size = config.size(LayerSite(kind, module, 0, (("", 0),)), "") or config.group_size
        form = form_of(size) if suffix == "qweight" else PLAIN
        found[form] = found.get(form, 0) + 1
    return {one: count for one, count in found.items() if count} or {form_of(config.group_size): 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    packing, layout, reasons = packing_of(given), str(given.get("version") or "gemm").lower(), _of_settings(given)
    if packing and packing not in PACKINGS:
        reasons.append(f"packing_format {packing!r:.60}, not {' or '.join(map(repr, PACKINGS))}")
    elif not packing and layout not in LAYOUTS:
        reasons.append(f"layout {given.get('version')!r:.60}, not {' or '.join(map(repr, LAYOUTS))}")
    elif not packing and layout in FILLED and _group_size(given) not in FILLED_SIZES:
        reasons.append(f"groups of {_group_size(given)!r:.60} inputs in the layout {layout!r}")
    if packing and "fp" in data_type(given):
        reasons.append(f"weights of {data_type(given)!r:.60}, not integers")
    for name, own in _own(given).items():
        try:
            re.compile(name)
        except re.error as error:
            reasons.append(f"{name!r:.60} is no regular expression ({error})")
        reasons += [] if own is False else [f"{name}: {one}" for one in _of_settings(own)]
    return reasons


def _own(given: Mapping[str, object]) -> dict[str, Mapping[str, object] | Literal[False]]:
    """Return what AutoRound says of single layers, complete; False: they are plain."""
    if given.get("quant_method") not in METHODS:
        return {}
    return {name: {**given, **own} if isinstance(own, Mapping) else False for name, own in own_settings(given).items()}


def _of_settings(given: Mapping[str, object]) -> list[str]:
    bits, size = given.get("bits", given.get("w_bit", 4)), _group_size(given)
    whole = type(size) is int and (size > 0 or size == -1)
    reasons = (
        None if bits == 4 else f"weights of {bits!r:.60} bits, not 4",
        None if whole else f"groups of {size!r:.60} inputs",
    )
    return [reason for reason in reasons if reason]


def _group_size(given: Mapping[str, object]) -> object:
    return given.get("group_size", given.get("q_group_size", 128))
