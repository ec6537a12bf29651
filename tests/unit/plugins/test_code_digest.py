"""The digest of a distribution's code: what changes it, installed and editable."""

from __future__ import annotations

import importlib
import json

import pytest

from core.api.errors import PluginError
from core.plugins.code import code_digest, code_digests

FILES = {
    "acme_pack/__init__.py": "",
    "acme_pack/table.bin": "1",
    "acme_pack/__init__.pyc": "1",
    "acme_pack/__pycache__/a.pyc": "1",
    "other_pack/more.py": "1",
    "acme-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1\n",
    "acme-1.dist-info/INSTALLER": "pip",
    "acme-1.dist-info/entry_points.txt": "[core.plugins]\nacme = acme_pack\n",
}


@pytest.fixture(params=["installed", "editable"])
def site(request, tmp_path, monkeypatch):
    root = tmp_path / "site"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "script").write_text("1")
    listed = [*FILES, "../bin/script"]
    if request.param == "editable":
        direct = {"url": "file:///src/acme", "dir_info": {"editable": True}}
        (root / "acme-1.dist-info" / "direct_url.json").write_text(json.dumps(direct))
        listed = [name for name in listed if ".dist-info" in name]
    (root / "acme-1.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in listed))
    monkeypatch.syspath_prepend(root)
    importlib.invalidate_caches()
    return root, request.param


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("acme_pack/__init__.py", True),
        ("acme_pack/table.bin", True),
        ("other_pack/more.py", "installed"),  # an editable distribution's packages are those of its entry points
        ("acme_pack/new.py", "editable"),  # an installed one has the files of its RECORD
        ("acme_pack/__init__.pyc", False),
        ("acme_pack/__pycache__/a.pyc", False),
        ("acme_pack/.swp", False),
        ("acme-1.dist-info/INSTALLER", False),
        ("../bin/script", False),
    ],
)
def test_the_digest_follows_the_files_that_are_code(site, name, counts):
    root, how = site
    before = code_digest("acme")
    assert before == code_digest("Acme") == code_digests(["acme", "acme"])["acme"]
    (root / name).write_text("2")
    assert (code_digest("acme") != before) is (counts is True or counts == how)


@pytest.mark.parametrize("gone", ["acme_pack/table.bin", None])
def test_what_cannot_be_read_is_named(site, gone):
    root, how = site
    if gone and how == "installed":
        (root / gone).unlink()
        name = "acme"
    else:
        name = "no-such-distribution"
    with pytest.raises(PluginError, match=f"CORE-P175 the code of distribution {name} cannot be read: "):
        code_digest(name)
