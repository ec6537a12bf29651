"""Quantization settings of a checkpoint with float8 weights. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from core_plugin_unquantized.auto_round import METHODS as AUTO_ROUND
from core_plugin_unquantized.auto_round import inside_blocks
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
from core_plugin_fp8 import auto_round

BY_ROWS = "fbgemm_fp8"
"""The method whose checkpoints have a scale for each output."""

METHODS = frozenset({"fp8", BY_ROWS, *AUTO_ROUND})
"""Those whose checkpoints are read as they are."""

CODES = "float8_e4m3fn"


class FP8Options(BaseModel):
    """Options of the method `fp8`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal[8, 16] = Field(
        8, description="Bits of activations: 8 rounds them as the checkpoint says, or per token; 16 leaves them."
    )

    def applied(self, form: WeightForm) -> WeightForm:
        """Return a form with the activations that are wanted."""
        return form if self.activations == 8 else form.replace(activations="as_is")


ROUNDED = WeightForm(codes=CODES, activations="float8:token")
"""Form of weights that are rounded while they load: a scale for each output."""


@dataclass(frozen=True, slots=True)
class FP8Config:
    """Settings of a checkpoint.

    Attributes:
        block: Outputs and inputs that share a scale; `(0, 0)`: all, `(1, 0)`: those of one output.
        fixed: Whether the checkpoint has the scales of activations.
        rounds: Whether activations are rounded.
        plain: Modules that are not quantized.
        expressions: Of further ones.
        head: Whether the output projection is quantized.
        given: Its `quantization_config`.
    """

    block: tuple[int, int]
    fixed: bool
    rounds: bool
    plain: tuple[str, ...]
    expressions: tuple[re.Pattern[str], ...]
    head: bool
    given: Mapping[str, object]

    @staticmethod
    def read(given: Mapping[str, object]) -> FP8Config:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "Supported are e4m3 weights with a scale for each block or in all.")
        said = auto_round.translated(given)
        size = cast("list[int] | None", said.get("weight_block_size"))
        rows = said.get("quant_method") == BY_ROWS or said.get("by_outputs") is True
        return FP8Config(
            block=(size[0], size[1]) if size else (1, 0) if rows else (0, 0),
            fixed=said.get("activation_scheme") == "static",
            rounds=said.get("activations", 8) == 8,
            plain=listed(said, "modules_to_not_convert", "ignored_layers"),
            expressions=auto_round.plain_layers(given),
            head=auto_round.takes_head(given),
            given=given,
        )

    @property
    def form(self) -> WeightForm:
        """Form of the layers that are quantized."""
        outputs, inputs = self.block
        runs = outputs > 1 and inputs > 1
        rounds = "float8:128" if runs else "float8:tensor" if self.fixed else "float8:token"
        return WeightForm(codes=CODES, outputs=outputs, inputs=inputs, activations=rounds if self.rounds else "as_is")

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized."""
        module = site.module(part)
        if names_module(self.plain, module) or any(one.match(module) for one in self.expressions):
            return False
        if site.kind == "lm_head":
            return self.head
        return site.inner and inside_blocks(self.given, module)


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this FP8 checkpoint cannot be read: {how}.", hint=hint)


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse checkpoints that say what is not understood; plain ones are rounded."""
    return Verdict.of(*reasons_against(request.checkpoint)) if request.method in METHODS else Verdict()


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    kinds = [kind for name, (shape, kind) in checkpoint.tensors.items() if name.endswith(".weight") and len(shape) == 2]
    if checkpoint.quantization not in METHODS:
        return {ROUNDED: 0, PLAIN: 0}
    form, codes = FP8Config.read(checkpoint.quantization_config).form, kinds.count(CODES)
    found = {form: codes, PLAIN: len(kinds) - codes}
    return {one: count for one, count in found.items() if count} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    if reasons := list(auto_round.reasons_against(given)):
        return reasons
    given = auto_round.translated(given)
    scheme, size, form = given.get("activation_scheme", "dynamic"), given.get("weight_block_size"), given.get("fmt")
    blocks = isinstance(size, list | tuple) and len(size) == 2 and all(type(one) is int and one > 0 for one in size)
    found = (
        None if scheme in ("dynamic", "static") else f"activation_scheme {scheme!r:.60}, not 'dynamic' or 'static'",
        None if size is None or blocks else f"weight_block_size {size!r:.60}, not two sizes",
        "fixed scales of activations for weights in blocks" if size is not None and scheme == "static" else None,
        None if form in (None, "e4m3", CODES) else f"numbers in {form!r:.60}, not 'e4m3'",
    )
    return [reason for reason in found if reason]
