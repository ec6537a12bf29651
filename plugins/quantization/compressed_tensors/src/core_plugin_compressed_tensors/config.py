"""What a compressed-tensors checkpoint says of itself. Torch-free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

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

_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "type": ("int",),
    "symmetric": (True,),
    "strategy": ("channel", "tensor"),
}
_ACTIVATIONS: dict[str, tuple[Any, ...]] = {
    "num_bits": (8,),
    "type": ("int",),
    "symmetric": (True,),
    "strategy": ("token",),
    "dynamic": (True,),
}


@dataclass(frozen=True, slots=True)
class CompressedConfig:
    """Settings of a checkpoint.

    Attributes:
        by_channel: Whether each output has a scale; else there is one for the whole weight.
        rounds_activations: Whether activations are rounded to int8 per token.
        ignored: Layers that are not quantized: names, or `re:` and a regular expression.
    """

    by_channel: bool
    rounds_activations: bool
    ignored: tuple[str, ...]

    @staticmethod
    def read(given: Mapping[str, object]) -> CompressedConfig:
        """Read `quantization_config`. Raises `CheckpointError` CORE-M160 for what is not understood."""
        if reasons := reasons_against(given):
            raise _unreadable(
                "; ".join(reasons),
                "Supported are symmetric int8 weights per channel or tensor, "
                "with activations dynamic per token or plain.",
            )
        (group,) = cast("Mapping[str, Mapping[str, Any]]", given["config_groups"]).values()
        return CompressedConfig(
            by_channel=group["weights"]["strategy"] == "channel",
            rounds_activations=bool(group.get("input_activations")),
            ignored=tuple(cast("Sequence[str]", given.get("ignore") or ())),
        )

    @property
    def form(self) -> WeightForm:
        """Form of the layers that are quantized."""
        return WeightForm(
            codes="int",
            bits=8,
            outputs=1 if self.by_channel else 0,
            activations="int8:token" if self.rounds_activations else "as_is",
        )

    def quantizes(self, site: LayerSite, part: str) -> bool:
        """Whether this part of a layer is quantized: every linear module is that is not ignored."""
        module = site.module(part)
        return (site.inner or site.kind == "lm_head") and not any(_matches(name, module) for name in self.ignored)

    def contradicted(self, how: str) -> CheckpointError:
        """Return the error of tensors that are not what the settings say: CORE-M160."""
        return _unreadable(how, "The weights and config.json do not belong together.")


def _unreadable(why: str, hint: str) -> CheckpointError:
    return CheckpointError("CORE-M160", f"this compressed-tensors checkpoint cannot be read: {why}.", hint=hint)


def _matches(name: str, module: str) -> bool:
    return re.match(name[3:], module) is not None if name.startswith("re:") else name == module


def refine(request: QuantRequest, probe: ProbeResult) -> Verdict:
    """Refuse every scheme of the format but int8, while methods are chosen."""
    return Verdict.of(*reasons_against(request.checkpoint))


def forms_of(checkpoint: CheckpointInfo) -> dict[WeightForm, int]:
    """Return the form of codes and the plain one, each with the number of its matrices."""
    form = CompressedConfig.read(checkpoint.quantization_config).form
    weights = [(name, one) for name, (shape, one) in checkpoint.tensors.items() if len(shape) == 2]
    kinds = [one for name, one in weights if name.endswith(".weight")]
    codes = kinds.count("int8")
    found = {form: codes, PLAIN: len(kinds) - codes}
    return {one: count for one, count in found.items() if count} or {form: 0}


def reasons_against(given: Mapping[str, object]) -> list[str]:
    """Return everything in a `quantization_config` that is not understood."""
    groups = _mapping(given.get("config_groups"))
    form, sparse = given.get("format", "int-quantized"), _mapping(given.get("sparsity_config"))
    reasons = [] if form == "int-quantized" else [f"format {form!r:.60}, not 'int-quantized'"]
    reasons += _of_ignored(given.get("ignore") or ())
    if len(groups) != 1:
        reasons.append(f"{len(groups)} groups of layers, not one")
    if sparse.get("format", "dense") != "dense":
        reasons.append(f"sparse weights ({sparse['format']!s:.60}, {sparse.get('sparsity_structure')})")
    if _mapping(given.get("transform_config")).get("config_groups"):
        reasons.append("inputs are transformed (transform_config)")
    for name, group in groups.items():
        reasons += [f"{name} ({_title(_mapping(group))}): {reason}" for reason in _of_group(_mapping(group))]
    return reasons


def _of_ignored(names: object) -> list[str]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return [f"'ignore' {names!r:.60}, not a list of names"]
    for pattern in (name.removeprefix("re:") for name in names if name.startswith("re:")):
        try:
            re.compile(pattern)
        except re.error as error:
            return [f"'ignore' with {pattern!r:.60}, which is no regular expression ({error})"]
    return []


def _of_group(group: Mapping[str, Any]) -> list[str]:
    targets, activations = group.get("targets"), group.get("input_activations")
    reasons = [] if targets in (["Linear"], ("Linear",)) else [f"targets {targets!r:.60}, not ['Linear']"]
    reasons += _other("weights", _mapping(group.get("weights")), _WEIGHTS)
    return reasons + (_other("input_activations", _mapping(activations), _ACTIVATIONS) if activations else [])


def _title(group: Mapping[str, Any]) -> str:
    """Return the usual short name of a scheme: `W4A16`, `W8A8 float`."""
    weights, activations = _mapping(group.get("weights")), _mapping(group.get("input_activations"))
    kind = " float" if weights.get("type") == "float" else ""
    return f"W{weights.get('num_bits', '?')!s:.9}A{activations.get('num_bits', 16)!s:.9}{kind}"


def _other(what: str, given: Mapping[str, Any], known: Mapping[str, tuple[Any, ...]]) -> list[str]:
    return [
        f"{what} with {key} {given.get(key)!r:.60}, not {' or '.join(map(repr, values))}"
        for key, values in known.items()
        if given.get(key) not in values
    ]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
