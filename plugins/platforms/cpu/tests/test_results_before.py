"""What recording knows of a torch operation's result before it is made (`native/results.py`)."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from core_plugin_cpu.native.results import SHARED, result_of

aten = torch.ops.aten

LAYOUTS = {
    "contiguous": lambda: torch.rand(5, 3, 7),
    "turned": lambda: torch.rand(3, 5, 7).transpose(0, 1),
    "turned twice": lambda: torch.rand(7, 3, 5).permute(2, 1, 0),
    "sliced": lambda: torch.rand(5, 6, 9)[:, ::2, 1:8],
    "repeated": lambda: torch.rand(5, 1, 7).expand(5, 3, 7),
    "a row": lambda: torch.rand(7),
    "a column": lambda: torch.rand(5, 1, 1),
    "a number": lambda: torch.tensor(2.0),
    "without elements": lambda: torch.rand(5, 3, 0),
    "integers": lambda: torch.randint(1, 9, (5, 3, 7)),
    "half": lambda: torch.rand(5, 3, 7).bfloat16(),
}


def like(found):
    return found.shape, found.stride(), found.dtype


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["sigmoid", "exp", "neg", "silu", "softplus", "rsqrt", "clone"])
def test_operations_on_one_tensor(name, layout):
    x, func = LAYOUTS[layout](), getattr(aten, name).default
    if x.dtype == torch.int64 and name in ("silu", "softplus"):
        with pytest.raises(RuntimeError):
            result_of(func, (x,), {})
        return
    assert like(result_of(func, (x,), {})) == like(func(x))


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("func", [aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.eq.Tensor], ids=str)
def test_operations_on_two_tensors(func, first, second):
    x, y = LAYOUTS[first](), LAYOUTS[second]()
    try:
        due = like(func(x, y))
    except RuntimeError:  # their sizes do not go together
        with pytest.raises(ValueError, match="broadcast"):
            result_of(func, (x, y), {})
    else:
        assert like(result_of(func, (x, y), {})) == due


OTHERS = {
    "a number and a factor": lambda: (aten.add.Tensor, (torch.rand(4, 3), 1), {"alpha": 2}),
    "a fraction for integers": lambda: (aten.mul.Tensor, (torch.ones(4, 3, dtype=torch.int32), 1.5), {}),
    "three": lambda: (aten.where.self, (torch.rand(4, 1) > 0.5, torch.rand(3), torch.rand(4, 3)), {}),
    "a layout": lambda: (aten.clone.default, (torch.rand(4, 3).t(),), {"memory_format": torch.contiguous_format}),
    "limits": lambda: (aten.clamp.default, (torch.rand(4, 3),), {"min": 0.0}),
    "a list": lambda: (aten.cat.default, ([torch.rand(4, 3), torch.rand(2, 3)],), {}),
    "dimensions": lambda: (aten.sum.dim_IntList, (torch.rand(4, 3), [1]), {}),
    "a dtype": lambda: (aten._to_copy.default, (torch.rand(4, 3),), {"dtype": torch.bfloat16}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arguments(name):
    func, args, kwargs = OTHERS[name]()
    assert like(result_of(func, args, kwargs)) == like(func(*args, **kwargs))


def test_views_are_shared_and_changes_are_what_they_change():
    x = torch.rand(4, 6)
    assert result_of(aten.slice.Tensor, (x, 0, 1, 3), {}) is SHARED
    assert result_of(aten.split_with_sizes.default, (x, [2, 4], 1), {}) is SHARED
    assert like(result_of(aten.add_.Tensor, (x.t(), torch.rand(6, 1)), {})) == like(x.t())
    assert result_of(aten.add.Tensor, (x, x), {}).device.type == "meta"


def test_nothing_of_the_compiler_is_imported_for_what_layers_do():
    script = (
        "import sys, torch\n"
        "from core_plugin_cpu.native.results import result_of\n"
        "aten, x = torch.ops.aten, torch.rand(5, 8)\n"
        "for name in ('add.Tensor', 'mul.Tensor', 'div.Tensor', 'sub.Tensor', 'maximum.default'):\n"
        "    kind, form = name.split('.')\n"
        "    result_of(getattr(getattr(aten, kind), form), (x, torch.rand(8)), {})\n"
        "for name in ('sigmoid', 'exp', 'neg', 'silu', 'softplus', 'tanh', 'relu', 'gelu', 'rsqrt'):\n"
        "    result_of(getattr(aten, name).default, (x,), {})\n"
        "result_of(aten.add_.Tensor, (x, 1.0), {})\n"
        "result_of(aten.split_with_sizes.default, (x, [3, 5], 1), {})\n"
        "result_of(aten.view.default, (x, [4, 10]), {})\n"
        "result_of(aten._to_copy.default, (x,), {'dtype': torch.bfloat16})\n"
        "print([name for name in ('torch._dynamo', 'sympy', 'triton') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
