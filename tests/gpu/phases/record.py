"""What a phase writes down, and the models that several of them run."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Record:
    """The JSON file of a phase, written anew with every figure.

    Attributes:
        platform: Name of the platform to run on.
        small: Tiny shapes, to try the script.
    """

    def __init__(self) -> None:
        self.platform, file, small = sys.argv[1:4]
        self.small = small == "1"
        self._file = Path(file)
        self._told: dict[str, Any] = {"figures": {}, "failures": []}
        self._write()

    def note(self, name: str, value: Any) -> None:
        """Write a figure down, with its unit in the name."""
        self._told["figures"][name] = round(value, 4) if isinstance(value, float) else value
        self._write()

    def fail(self, text: str) -> None:
        """Write down what is wrong."""
        self._told["failures"].append(text)
        self._write()

    @contextmanager
    def part(self, name: str) -> Any:
        """Write down that a part failed, and go on with the next."""
        try:
            yield
        except Exception as error:
            self.fail(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")

    @property
    def stand_in(self) -> dict[str, Any]:
        """What an engine needs besides where CPU tensors stand in for a device: kernels of the CPU do not wait."""
        return {"attention_backend": "torch_sdpa"} if self.small else {}

    def _write(self) -> None:
        self._file.write_text(json.dumps(self._told, indent=1))
