from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import pytest

pytestmark = [pytest.mark.covers("B-1")]

@pytest.mark.covers("A-1", "A-2")
@pytest.mark.parametrize("x", [1])
def test_two(x): ...

class TestGroup:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.covers("A-1"))])
    async def test_inner(self, x): ...

def test_none():
    text = '@pytest.mark.covers("A-3")'

@other.covers("A-3")
def test_other(): ...
"""


@pytest.fixture(scope="module")
def capabilities() -> ModuleType:
    spec = importlib.util.spec_from_file_location("capabilities", ROOT / "tools" / "capabilities.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "capabilities.toml").write_text(
        '[First]\nA-1 = "One"\nA-2 = "Two"\nA-3 = "Three"\n[Second]\nB-1 = "Bee"\n'
        '[Missing]\nA-2 = "its half"\nA-3 = "all"\n'
    )
    for folder in ("tests/unit", "plugins/kind/name/tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tests/unit/test_it.py").write_text(TESTS)
    (tmp_path / "plugins/kind/name/tests/test_leaf.py").write_text(
        'import pytest\n@pytest.mark.covers("A-2")\ndef test_leaf(): ...\n'
    )
    return tmp_path


def test_marks_are_found_where_they_may_stand(capabilities: ModuleType, root: Path) -> None:
    assert capabilities.collect(root) == {
        "A-1": ["tests/unit/test_it.py::test_two", "tests/unit/test_it.py::test_inner"],
        "A-2": ["plugins/kind/name/tests/test_leaf.py::test_leaf", "tests/unit/test_it.py::test_two"],
        "B-1": ["tests/unit/test_it.py"],
    }


def test_the_page_lists_shown_part_and_planned(capabilities: ModuleType, root: Path) -> None:
    assert capabilities.main([], root) == 0
    page = (root / "docs" / "capabilities.md").read_text()
    assert "Of 4, 2 are shown, 1 in part." in page
    assert "| A-2 | Two | part; missing: its half |" in page
    assert "| A-3 | Three | planned |  |" in page
    assert "| B-1 | Bee | shown | `tests/unit/test_it.py` |" in page
    assert page.index("## First") < page.index("| A-1 |") < page.index("## Second")


def test_check_notices_a_stale_page_and_writes_nothing(capabilities: ModuleType, root: Path) -> None:
    page = root / "docs" / "capabilities.md"
    assert capabilities.main(["--check"], root) == 1
    assert not page.exists()
    capabilities.main([], root)
    assert capabilities.main(["--check"], root) == 0
    page.write_text(page.read_text() + "\n")
    assert capabilities.main(["--check"], root) == 1


def test_an_unknown_id_is_refused(capabilities: ModuleType, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "tests/unit/test_more.py").write_text('import pytest\n@pytest.mark.covers("Z-9")\ndef test_z(): ...\n')
    assert capabilities.main([], root) == 1
    assert "Z-9" in capsys.readouterr().out


@pytest.fixture(scope="module")
def own() -> dict[str, dict[str, str]]:
    """The table of this repository."""
    return tomllib.loads((ROOT / "tools" / "capabilities.toml").read_text())


def test_each_wording_is_one_short_line_under_a_unique_id(own) -> None:
    ids = [identifier for area, rows in own.items() for identifier in rows if area != "Missing"]
    assert len(ids) == len(set(ids)) > 100
    for rows in own.values():
        for identifier, text in rows.items():
            assert re.fullmatch(r"[A-Z]+-\d\d", identifier)
            assert 0 < len(text) <= 100 and "|" not in text
    titles = [text for area, rows in own.items() if area != "Missing" for text in rows.values()]
    assert not [title for title in titles if title[0].islower()], "what is missing stands in a table of its own"


def test_what_is_missing_is_missing_of_something_that_tests_show(capabilities: ModuleType, own) -> None:
    assert own["Missing"].keys() <= capabilities.collect(ROOT).keys()


def test_every_mark_of_this_repository_is_known(capabilities: ModuleType, own) -> None:
    assert set(capabilities.collect(ROOT)) <= {identifier for rows in own.values() for identifier in rows}
