"""From the fields of a request to `SamplingParams`, with the model's defaults where a client says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.sampling_table import FROM_MODEL

_OWN = frozenset(SamplingParams.__struct_fields__)


def sampling_params(fields: Mapping[str, Any], defaults: Mapping[str, Any], max_model_len: int) -> SamplingParams:
    """Return the parameters that a front end's fields give.

    Args:
        fields: By the names of `SamplingParams`, and of what plugins declare (`LogitsSpec.fields`), which become
            `extra_args`; None means that the client did not say.
        defaults: Used where the client did not say (`model_defaults`).

    Raises:
        RequestError: A value is outside its range; wrap the call in `spelling`.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    unsaid = {name: None for name in ("max_tokens",) if name in fields and fields[name] is None}
    said = {**defaults, **unsaid, **given}
    if further := said.keys() - _OWN:
        own = {name: said.pop(name) for name in further}
        asked = {name: own[name] for name in further & given.keys()}
        said["extra_args"] = {**own, **(said.get("extra_args") or {}), **asked}
    params = SamplingParams(**said)
    if params.min_tokens > max_model_len:
        raise RequestError(
            f"min_tokens ({params.min_tokens}) is greater than the model's length ({max_model_len})", param="min_tokens"
        )
    return params


def model_defaults(params: SamplingParams) -> dict[str, Any]:
    """Return what a model's makers recommend where a request says nothing, of plugins' fields too."""
    return {**{name: getattr(params, name) for name in FROM_MODEL}, **(params.extra_args or {})}
