"""The chat page on a server: its script runs in node, over a document of a few lines."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "plugins/routes/webui/web/tests/served.mjs"


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's script runs in node, which is not installed here")
def test_an_answer_over_a_reload_cut_continued_and_stopped(launch):
    flags = ("--threads", "1", "--max-model-len", "1024", "--num-blocks", "100")
    server = launch("smollm2", "--route", "webui", *flags).wait_ready()
    done = subprocess.run(["node", SCRIPT, server.url], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "served\n", done.stderr
    deadline = time.monotonic() + 10
    while server.gauges()["core_num_requests_running"] > 0:
        assert time.monotonic() < deadline, "the server goes on with an answer that was stopped"
        time.sleep(0.05)
