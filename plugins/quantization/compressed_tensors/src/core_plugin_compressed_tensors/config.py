"""Quantization settings of a compressed-tensors checkpoint. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

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
from core_plugin_compressed_tensors import auto_round
from core_plugin_compressed_tensors.schemes import Scheme, mapping, reasons_of, scheme_of, title


class CompressedOptions(BaseModel):
    """Options of the method `compressed-tensors`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    activations: Literal["checkpoint", "as_is"] = Field(
        "checkpoint", description="checkpoint: rounded as the checkpoint says; as_is: left as they are."
    )


@dataclass(frozen=True, slots=True)
class CompressedConfig:
    """Settings of a checkpoint.

    Attributes:
        groups: Targets, and the scheme of the layers that they name. Targets are names, `re:` and a regular expression,
            or `Linear`: every linear module that no other target of any group names.
        ignored: Layers that are not quantized: names, or `re:` and a regular expression.
    """

    groups: tuple[tuple[tuple[str, ...], Scheme], ...]
    ignored: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> CompressedConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise contradicted("; ".join(reasons), "The README of core-plugin-compressed-tensors lists what is read.")
        given = auto_round.translated(given)
        groups = mapping(given["config_groups"]).values()
        return CompressedConfig(
            tuple((tuple(group["targets"]), scheme_of(group, given)) for group in groups),
            tuple(cast("Sequence[str]", given.get("ignore") or ())),
        )

    def scheme(self, site: LayerSite, part: str) -> Scheme | None:
        """Return the scheme of a part of a layer; None where it is plain."""
        module = site.module(part)
        if not (site.inner or site.kind == "lm_head") or any(_matches(name, module) for name in self.ignored):
            return None
        named = (scheme for targets, scheme in self.groups if any(_matches(name, module) for name in targets))
        others = (scheme for targets, scheme in self.groups if "Linear" in targets)
        return next(named, None) or next(others, None)


def contradicted(how: str, hint: str = "The weights and config.json do not belong together.") -> CheckpointError:
    """Return the error of a checkpoint that is not what it says of itself: CORE-M160."""
    return CheckpointError("CORE-M160", f"this compressed-tensors checkpoint cannot be read: {how}.", hint=hint)


def _matches(name: str, module: str) -> bool:
    return re.match(name[3:], module) is not None if name.startswith("re:") else name == module


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse schemes that are not read, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the forms of codes and the plain one, each with the number of its matrices."""
    config, found = CompressedConfig.read(checkpoint.quantization_config), {PLAIN: 0}
    for name, (shape, dtype) in checkpoint.tensors.items():
        module, _, suffix = name.rpartition(".")
        if len(shape) != 2 or suffix not in ("weight", "weight_packed"):
            continue
        kind = "lm_head" if module.endswith("lm_head") else "linear"
        scheme = None if "embed" in module else config.scheme(LayerSite(kind, module, shape[1], (("", shape[0]),)), "")
        form = PLAIN if scheme is None or dtype in ("float32", "bfloat16", "float16") else scheme.form
        found[form] = found.get(form, 0) + 1
    return {one: count for one, count in found.items() if count} or {config.groups[0][1].form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    if reasons := auto_round.reasons_against(given):
        return reasons
    given = auto_round.translated(given)
    groups, sparse = mapping(given.get("config_groups")), mapping(given.get("sparsity_config"))
    reasons = _of_names("ignore", given.get("ignore") or ())
    if not groups:
        reasons.append("no groups of layers (config_groups)")
    if sparse.get("format", "dense") != "dense":
        reasons.append(f"sparse weights ({sparse['format']!s:.60}, {sparse.get('sparsity_structure')})")
    if mapping(given.get("transform_config")).get("config_groups"):
        reasons.append("inputs are transformed (transform_config)")
    for name, group in groups.items():
        own = mapping(group)
        targets = own.get("targets")
        mistakes = _of_names("targets", targets) if targets else [f"targets {targets!r:.60}, not a list of names"]
        reasons += [f"{name} ({title(own)}): {reason}" for reason in [*mistakes, *reasons_of(own, given)]]
    return reasons


def _of_names(what: str, names: object) -> list[str]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return [f"'{what}' {names!r:.60}, not a list of names"]
    for pattern in (name.removeprefix("re:") for name in names if name.startswith("re:")):
        try:
            re.compile(pattern)
        except re.error as error:
            return [f"'{what}' with {pattern!r:.60}, which is no regular expression ({error})"]
    return []
