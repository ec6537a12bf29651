"""Layers of a quantization method, filled from tensors, for the tests of the method."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from core.api.models import WeightRules
from core.api.quantization import LayerSite, QuantContext, QuantScheme
from core.layers.guard import LayerContext
from core.layers.linear import QuantLayer
from core.layers.params import ParamGroup
from core.testing.conformance.tools.tensors import PlainTensor
from core.worker.loading.fill import WeightFiller
from core.worker.loading.names import NameMap

if TYPE_CHECKING:
    from core.api.quantization import LayerQuant
    from core.api.weights import WeightTensor
    from core.testing.conformance.device_samples import CheckpointSample

__all__ = ["PlainTensor", "fill", "make_layer", "sample_layer"]


def make_layer(
    scheme: QuantScheme, site: LayerSite, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> tuple[LayerQuant, QuantLayer]:
    """Return how a scheme stores a site, and the layer of it, without weights.

    Args:
        device, dtype: What the scheme was made with; the host's by default.
    """
    quant = scheme.for_site(site)
    group = ParamGroup(site.prefix, quant.decode)
    quant.declare(group)
    return quant, QuantLayer(site, quant, group, LayerContext(device or torch.device("cpu"), dtype))


def fill(group: ParamGroup, tensors: Iterable[WeightTensor], device: torch.device | None = None) -> None:
    """Fill every layer that reads `group`, as core does; of `tensors` those count that it asks for.

    Raises:
        CheckpointError: As `WeightFiller.fill`.
    """
    wanted = set(group.targets())
    filler = WeightFiller([group], NameMap(WeightRules(), ()), device or torch.device("cpu"))
    filler.fill(tensor for tensor in tensors if tensor.name in wanted)


def sample_layer(
    scheme: type[QuantScheme],
    sample: CheckpointSample,
    site: LayerSite,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    options: Mapping[str, object] | None = None,
) -> QuantLayer:
    """Return a layer of a sample's safetensors files, which are written to `folder`."""
    from safetensors.torch import load_file

    path = sample.write(folder)
    config: dict[str, Any] = json.loads((path / "config.json").read_text())["quantization_config"]
    _, layer = make_layer(scheme(QuantContext(torch.device("cpu"), dtype, config, options or {})), site, dtype=dtype)
    fill(layer.group, [PlainTensor(*pair) for pair in load_file(path / "model.safetensors").items()])
    return layer
