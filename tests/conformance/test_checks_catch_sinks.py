"""Each check of stat sinks finds the sink that is wrong in its way, and only that check does."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_testing.conformance import Level

MANIFEST = """
from core.api import StatSinkSpec

SPEC = StatSinkSpec(
    name="broken", impl="PKG.sink:Sink", api=1, summary="s", options="PKG.options:Options"
)
"""

OPTIONS = """
from pydantic import BaseModel, Field

class Options(BaseModel):
    path: str = Field({default}, description="File to write to.")
"""

# A line for each request, written by a thread of its own.
SINK = """
import queue
import threading
import time

class Sink:
    lost = []

    def __init__(self, options):
        self.lost.clear()
        self.lines, self.file = queue.Queue(), open(options["path"], "a")
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        {init}

    def work(self):
        while (line := self.lines.get()) is not None:
            self.file.write(line)

    def record(self, stats):
        {record}
        self.lines.put(f"{stats.running} running\\n")

    def finished(self, request):
        {finished}
        self.lines.put(f"{request.request_id!r} {request.total_seconds:.3f}\\n")

    def close(self):
        self.lines.put(None)
        self.thread.join()
        self.file.close()
        {close}
"""

CASES = {
    "every_figure_is_taken": {"finished": "round(request.queue_seconds, 3)"},
    "calls_return_at_once": {"finished": "time.sleep(0.006)"},
    "close_ends_everything": {"init": "threading.Thread(target=time.sleep, args=(4,), daemon=True).start()"},
    "sinks_share_nothing": {"close": "self.lost.append(self)", "record": "if self.lost: raise OSError('closed')"},
}


@pytest.fixture
def sink(make_plugin):
    def make(default: str = '"figures.txt"', samples: str = "", **given: str):
        source = SINK
        for key in ("init", "record", "finished", "close"):
            source = source.replace("{" + key + "}", given.get(key, "pass"))
        modules = {"manifest": MANIFEST, "sink": source, "options": OPTIONS.format(default=default)}
        return make_plugin("core.stat_sinks", modules | ({"conformance": samples} if samples else {}))

    return make


def test_a_sound_sink_passes_and_leaves_nothing_in_the_working_directory(sink, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(Path.cwd().iterdir())
    made = sink()
    report = made.report("sinks", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)
    assert sorted(Path.cwd().iterdir()) == sorted([*before, made.site])


@pytest.mark.parametrize("check", CASES)
def test_sinks(sink, check, monkeypatch):
    monkeypatch.setattr("core_testing.conformance.areas.sinks._PATIENCE", 0.3)
    assert set(sink(**CASES[check]).failing("sinks")) == {check}


def test_a_sink_whose_close_never_returns_in_time_is_caught(sink, monkeypatch):
    monkeypatch.setattr("core_testing.conformance.areas.sinks._CLOSING", 0.05)
    assert "close takes" in sink(close="time.sleep(0.1)").failing("sinks")["close_ends_everything"]


SAMPLES = """
from core_testing.conformance import OptionsSample

def samples():
    yield OptionsSample("a file", lambda folder: {{"{name}": str(folder / "figures.txt")}})
"""


def test_an_option_without_a_default_needs_a_sample(sink):
    alone = sink(default="...").report("spawn", "sinks")
    assert alone.level == Level.L0
    assert {one.because for one in alone.not_run if one.level == Level.L1} == {
        f"its options path have no default: add an OptionsSample to samples() in {alone.entry.value.split('.')[0]}"
        ".conformance"
    }
    with_one = sink(default="...", samples=SAMPLES.format(name="path")).report("spawn", "sinks")
    assert (with_one.failures, with_one.level) == ([], Level.L1)


def test_a_sample_whose_options_are_refused_is_named(sink):
    failing = sink(default="...", samples=SAMPLES.format(name="file")).failing("sinks")
    assert "'a file' are refused by" in failing["every_figure_is_taken"]
