"""What a phase writes down, and the models that several of them run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    "1B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
    },
    "8B": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 128256,
    },
    "small": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 128,
    },
}


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
    def options(self) -> dict[str, Any]:
        """Options of every engine of a phase."""
        dtype = "float32" if self.small else "bfloat16"
        made = {"dtype": dtype, "load_format": "dummy", "prefix_caching": False}
        return {"platform": self.platform, **made, **self.stand_in}

    @property
    def stand_in(self) -> dict[str, Any]:
        """What an engine needs besides where CPU tensors stand in for a device: kernels of the CPU do not wait."""
        return {"attention_backend": "torch_sdpa"} if self.small else {}

    def _write(self) -> None:
        self._file.write_text(json.dumps(self._told, indent=1))


def write_model(folder: Path, shape: str, tokenizer: Callable[[Path], object]) -> Path:
    """Write a Llama configuration, whose weights are made up when it is loaded."""
    values = SHAPES[shape]
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": 16384,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": 1,
        "bos_token_id": 0,
        **values,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer(folder)
    return folder


def parameters(shape: str) -> int:
    """Return the number of weights that a decoded token reads: all but the embedding."""
    s = SHAPES[shape]
    heads = (s["num_attention_heads"] + 2 * s["num_key_value_heads"]) * s["head_dim"]
    attention = s["hidden_size"] * (heads + s["num_attention_heads"] * s["head_dim"])
    layer = attention + 3 * s["hidden_size"] * s["intermediate_size"]
    return s["num_hidden_layers"] * layer + s["vocab_size"] * s["hidden_size"]
