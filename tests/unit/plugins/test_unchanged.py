"""What metadata says is read once, and again when it has changed."""

from __future__ import annotations

import os
import zipfile
from importlib.metadata import Distribution, PathDistribution

import pytest

from core.plugins.unchanged import Unchanged


class Reader:
    """Counts how often it reads a version."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, dist: Distribution) -> str:
        self.count += 1
        return dist.version


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "acme-1.0.dist-info"
    path.mkdir()
    (path / "METADATA").write_text("Name: acme\nVersion: 1.0\n")
    return path


def test_it_is_read_once(folder):
    read = Reader()
    kept = Unchanged(read, ("METADATA", "RECORD"))
    assert [kept.of(PathDistribution(folder)) for _ in range(3)] == ["1.0"] * 3 and read.count == 1


def another_text(folder):
    (folder / "METADATA").write_text("Name: acme\nVersion: 1.0.1\n")


def another_time(folder):
    (folder / "METADATA").write_text("Name: acme\nVersion: 2.0\n")
    os.utime(folder / "METADATA", ns=(0, 5))


def another_file(folder):
    (folder / "new").write_text("Name: acme\nVersion: 2.0\n")
    os.utime(folder / "new", ns=(0, (folder / "METADATA").stat().st_mtime_ns))
    os.replace(folder / "new", folder / "METADATA")


def one_more(folder):
    (folder / "RECORD").touch()


@pytest.mark.parametrize("change", [another_text, another_time, another_file, one_more])
def test_it_is_read_again_when_a_file_changes(folder, change):
    read = Reader()
    kept = Unchanged(read, ("METADATA", "RECORD"))
    kept.of(PathDistribution(folder))
    change(folder)
    assert kept.of(PathDistribution(folder)) == PathDistribution(folder).version and read.count == 2


def test_an_error_is_raised_each_time(folder):
    def broken(dist):
        raise ValueError(dist.version)

    kept = Unchanged(broken, ("METADATA",))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"1\.0"):
            kept.of(PathDistribution(folder))


def test_what_is_in_an_archive_is_read_each_time(tmp_path):
    with zipfile.ZipFile(tmp_path / "acme.zip", "w") as archive:
        archive.writestr("acme-1.0.dist-info/METADATA", "Name: acme\nVersion: 1.0\n")
    read = Reader()
    kept = Unchanged(read, ("METADATA",))
    inside = PathDistribution(zipfile.Path(tmp_path / "acme.zip", "acme-1.0.dist-info/"))
    assert [kept.of(inside) for _ in range(2)] == ["1.0"] * 2 and read.count == 2
