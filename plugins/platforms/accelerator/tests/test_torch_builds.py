"""For which devices torch was built, from its `version.py`."""

from __future__ import annotations

import pytest
import torch
from core_plugin_accelerator import TorchBuild, torch_build
from core_plugin_accelerator.build import parse

HEAD = (
    "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']\n"
)


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (
            "__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\ngit_version = 'c'\n"
            "hip: Optional[str] = None\nrocm: Optional[str] = None\nxpu: Optional[str] = None\n",
            TorchBuild("2.13.0+cu130", cuda="13.0"),
        ),
        (
            "__version__ = '2.9.1+rocm6.4'\ncuda = None\nhip: Optional[str] = '6.4.4'\n",
            TorchBuild("2.9.1+rocm6.4", hip="6.4.4"),
        ),
        ('__version__ = "2.9.1+xpu"\nxpu: Optional[str] = "20250302"\n', TorchBuild("2.9.1+xpu", xpu="20250302")),
        ("", TorchBuild()),
    ],
    ids=["cuda", "rocm", "xpu", "nothing"],
)
def test_what_version_files_say(text, build):
    assert parse(HEAD + text) == build


def test_the_installed_torch_is_read_as_it_says_itself():
    found = torch_build()
    assert found.version == torch.__version__
    for name in ("cuda", "hip", "xpu"):
        assert getattr(found, name) == (getattr(torch.version, name, None) or "")


def test_a_torch_that_is_blocked_or_absent_is_a_reason_and_no_error(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert torch_build() == TorchBuild()
    assert TorchBuild().lacks("cuda", "CUDA").startswith("torch is not installed; install it from pytorch.org's index")


def test_a_torch_of_another_build_says_for_what_it_is():
    rocm = TorchBuild("2.9.1+rocm6.4", hip="6.4")
    assert rocm.lacks("hip", "ROCm") == ""
    assert "the installed torch 2.9.1+rocm6.4 is built for hip; install one" in rocm.lacks("cuda", "CUDA")
    assert "built for the CPU alone" in TorchBuild("2.13.0+cpu").lacks("xpu", "XPU")
