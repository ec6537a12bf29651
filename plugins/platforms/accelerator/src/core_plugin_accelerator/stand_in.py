"""A device that stands in for accelerators where there is none: CPU tensors behind the API of a device module."""

from __future__ import annotations

from typing import Any

import torch

from core_plugin_accelerator.platform import AcceleratorPlatform
from core_testing.fakedevice.module import FakeModule


def stand_in(kind: type[AcceleratorPlatform], options: dict[str, Any] | None = None) -> AcceleratorPlatform:
    """Return a platform whose device module is a `FakeModule`, and whose tensors are CPU tensors."""

    class StandIn(kind):  # type: ignore[misc, valid-type]
        """The platform over the fake device module."""

        def _device_module(self) -> FakeModule:
            return FakeModule()

        def _torch_device(self, index: int) -> torch.device:
            return torch.device("cpu")

    made: AcceleratorPlatform = StandIn(options)
    return made


class FakeAccelerator(AcceleratorPlatform):
    """The fake device by the code that runs accelerators."""

    device_type = "cpu"
    backend = "gloo"

    def _device_module(self) -> FakeModule:
        return FakeModule(devices=2)

    def _torch_device(self, index: int) -> torch.device:
        return torch.device("cpu")
