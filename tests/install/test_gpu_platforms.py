"""Platforms of GPUs from their wheels, on a machine without one: each says why it is not used, and the CPU is."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
PLATFORMS = ("cuda", "rocm", "xpu")


@pytest.mark.covers("PLAT-01")
def test_what_is_installed_and_finds_no_device_gives_a_reason_and_no_error(environment, neutral):
    done = environment.run(
        [environment.core, "plugins", "why", "--json", "--platform", "auto"], cwd=neutral, timeout=120
    )
    report = next(one for one in json.loads(done.stdout)["selections"] if one["group"] == "core.platforms")
    rows = {row["name"]: row for row in report["candidates"]}
    assert rows["cpu"]["state"] == "chosen"
    for name in PLATFORMS:
        assert rows[name]["state"] == "rejected" and len(rows[name]["reasons"]) == 1
        assert "\n" not in rows[name]["reasons"][0]


@pytest.mark.parametrize("name", PLATFORMS)
def test_the_doctor_finds_nothing_wrong_with_it(environment, neutral, name):
    done = environment.run([environment.core, "plugins", "doctor", f"core-plugin-{name}"], cwd=neutral, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [one for one in done.stdout.splitlines() if f"platforms:{name} " in one]
    assert line.startswith("note: CORE-P129") and "it says: not here, because: " in line


def test_one_that_is_asked_for_says_what_is_missing(environment, neutral):
    done = environment.run([environment.core, "serve", "--platform", "cuda:1"], cwd=neutral, timeout=120)
    assert done.returncode != 0
    assert "CORE-P201" in done.stderr and "no NVIDIA driver" in done.stderr
