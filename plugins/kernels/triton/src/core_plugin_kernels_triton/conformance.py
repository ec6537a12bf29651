"""For the conformance kit: where Triton's interpreter is on, kernels run on CPU tensors."""

from __future__ import annotations

from collections.abc import Iterator

from core_plugin_kernels_triton.compat import INTERPRETED
from core_testing.conformance import ReferenceDevice


def samples() -> Iterator[ReferenceDevice]:
    """Yield the interpreter's device, with `TRITON_INTERPRET=1`."""
    if INTERPRETED.value:
        yield ReferenceDevice("Triton's interpreter")
