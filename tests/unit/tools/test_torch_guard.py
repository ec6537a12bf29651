from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def guard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("torch_guard", ROOT / "tools" / "torch_guard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(*requires: str, name: str = "torch") -> dict[str, Any]:
    facts = {"name": name, "version": "2.13.0", "requires_dist": ["filelock", "sympy>=1.13.3", *requires]}
    return {"version": "1", "install": [{"metadata": facts}]}


HERE = f"sys_platform == '{sys.platform}'"
ELSEWHERE = "sys_platform == 'nowhere'"


@pytest.mark.parametrize(
    "requires",
    [
        ["nvidia-cublas==13.1"],
        [f"nvidia-cublas==13.1; {HERE}"],
        [f"triton==3.6; {HERE}"],
        ["cuda-bindings>=13; python_version >= '3'"],
        ["pytorch-triton-rocm==3.6"],
        ["Triton"],
    ],
)
def test_accelerator_packages_stop_the_installation(guard: ModuleType, requires: list[str]) -> None:
    problem = guard.decide(report(*requires), accept_any=False)
    assert problem is not None
    assert "torch 2.13.0" in problem and "TORCH_INDEX" in problem and "TORCH=any" in problem
    assert guard.decide(report(*requires), accept_any=True) is None


@pytest.mark.parametrize(
    "requires",
    [
        [],
        [f"nvidia-cublas==13.1; {ELSEWHERE}"],
        ["opt-einsum>=3.3; extra == 'opt-einsum'", "triton; extra == 'gpu'"],
        ["networkx", "jinja2", "fsspec"],
    ],
)
def test_a_plain_build_is_fine(guard: ModuleType, requires: list[str]) -> None:
    assert guard.decide(report(*requires), accept_any=False) is None


def test_only_torch_counts(guard: ModuleType) -> None:
    assert guard.decide(report("nvidia-cublas", name="other"), accept_any=False) is None
    assert guard.decide({"install": []}, accept_any=False) is None


def test_the_advice_is_short_and_names_no_host(guard: ModuleType) -> None:
    problem = guard.decide(report("nvidia-a", "nvidia-b", "nvidia-c", "nvidia-d"), accept_any=False)
    assert "4 accelerator packages (nvidia-a, nvidia-b, nvidia-c, ...)" in problem
    assert len(problem.splitlines()) <= 3
    assert not re.search(r"https?:|\w\.(org|com|io|net)\b", problem)


@pytest.mark.parametrize(
    ("constraints", "fits"),
    [("", True), ("torch==2.13.*\n", True), ("# torch==1.0\nnumpy<3\ntorch<2.0 # old\n", False), ("-r other\n", True)],
)
def test_an_installed_torch_that_fits_is_kept(
    guard: ModuleType, monkeypatch: pytest.MonkeyPatch, constraints: str, fits: bool
) -> None:
    monkeypatch.setattr(guard.metadata, "version", lambda name: "2.13.0+cpu")
    assert guard.installed_fits(constraints) is fits


def test_a_missing_torch_does_not_fit(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise guard.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(guard.metadata, "version", missing)
    assert not guard.installed_fits("")


def test_main_prints_the_advice_and_fails(
    guard: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(guard, "installed_fits", lambda constraints: False)
    monkeypatch.setattr(guard, "ask_pip", lambda index: report("nvidia-cublas"))
    monkeypatch.delenv("TORCH", raising=False)
    assert guard.main() == 1
    assert "TORCH_INDEX" in capsys.readouterr().err
    monkeypatch.setenv("TORCH", "any")
    assert guard.main() == 0


def test_a_failing_pip_is_shown(
    guard: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(index: str | None) -> None:
        raise subprocess.CalledProcessError(1, "pip", stderr="No matching distribution")

    monkeypatch.setattr(guard, "installed_fits", lambda constraints: False)
    monkeypatch.setattr(guard, "ask_pip", fail)
    assert guard.main() == 1
    assert "No matching distribution" in capsys.readouterr().err


def test_pip_is_asked_with_the_index(guard: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        seen.append(command)
        return subprocess.CompletedProcess(command, 0, stdout='{"install": []}', stderr="")

    monkeypatch.setattr(guard.subprocess, "run", run)
    assert guard.ask_pip("the-index") == {"install": []}
    guard.ask_pip(None)
    assert seen[0][-3:] == ["--index-url", "the-index", "torch"]
    assert "--index-url" not in seen[1] and "--dry-run" in seen[1] and "--no-deps" in seen[1]
