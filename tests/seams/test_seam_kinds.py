"""A kind that a plugin defines, asked for by the halves of a participant in front end, engine and worker."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api.errors import CoreError

KINDS = """
from core.api import Contract, Kind

COUNTERS = Kind(group="seam.counters", label="counter", descriptor="seam_counts.spec:CounterSpec", option="counter",
                contracts={"impl": Contract("seam_counts.spec:Counter")})
"""

SPEC = """
from typing import ClassVar, Protocol
from core.api import Descriptor

class CounterSpec(Descriptor):
    group: ClassVar[str] = "seam.counters"

class Counter(Protocol):
    def count(self, tokens) -> int: ...
"""

MANIFEST = """
from core.api import ParticipantSpec

TALLY = ParticipantSpec(name="tally", impl="seam_counts.halves:Tally", worker_impl="seam_counts.halves:WorkerTally",
                        front_impl="seam_counts.halves:FrontTally", api=1, summary="Counts tokens")
"""

HALVES = """
from core.api import FrontParticipant, Participant, WorkerParticipant, load_chosen
from seam_counts.kinds import COUNTERS

class Tally(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        (one,) = setup.chosen(COUNTERS)
        self._counter, self._seen = one.value, 0
        again = load_chosen(setup.dumps(one))
        assert (again.name, again.owner, again.spec) == (one.name, one.owner, one.spec) and again.value is not one.value
    def arrive(self, request):
        self._seen += self._counter.count(request.prompt)
    def calls(self):
        return {"seen": lambda: self._seen}

class WorkerTally(WorkerParticipant):
    def __init__(self, setup):
        super().__init__(setup)
        self._names = [one.name for one in setup.chosen(COUNTERS)]
    def calls(self):
        return {"worker_counters": lambda: self._names}

class FrontTally(FrontParticipant):
    def __init__(self, setup):
        super().__init__(setup)
        self.names = [one.owner for one in setup.chosen(COUNTERS)]
        assert self.names == ["'double' (seam-double 1.0)"]
"""

DOUBLE = """
from seam_counts.spec import CounterSpec

DOUBLE = CounterSpec(name="double", impl="seam_double.counter:Double", api=1, summary="Counts twice")
"""

COUNTER = "class Double:\n    def {method}(self, tokens):\n        return 2 * len(tokens)\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """`installed(method)`: the kind with a participant that asks for it, and a counter whose method has this name."""

    def make(method):
        site = tmp_path / "site"
        points = {
            "seam-counts": "[core.kinds]\nseam.counters = seam_counts.kinds:COUNTERS\n"
            "[core.participants]\ntally = seam_counts.manifest:TALLY\n",
            "seam-double": "[seam.counters]\ndouble = seam_double.manifest:DOUBLE\n",
        }
        for dist, text in points.items():
            info = site / f"{dist.replace('-', '_')}-1.0.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text(text)
        modules = {"seam_counts/kinds": KINDS, "seam_counts/spec": SPEC, "seam_counts/manifest": MANIFEST}
        modules |= {"seam_counts/halves": HALVES, "seam_double/manifest": DOUBLE}
        for name, source in {**modules, "seam_double/counter": COUNTER.format(method=method)}.items():
            (site / name).with_suffix(".py").parent.mkdir(exist_ok=True)
            (site / name).with_suffix(".py").write_text(source)
        monkeypatch.syspath_prepend(str(site))

    yield make
    import sys

    for name in [name for name in sys.modules if name.startswith("seam_")]:
        del sys.modules[name]


def options(**more):
    return {"dtype": "float32", "num_blocks": 40, "participant": ["tally"], **more}


def test_every_half_gets_what_was_chosen(installed, llama, prompt):
    installed("count")
    with LLM(llama, **options(counter="double")) as llm:
        llm.generate([prompt(7), prompt(5)], SamplingParams(max_tokens=1))
        assert llm.call("seen") == 24 and llm.call("worker", "worker_counters") == ["double"]
        assert [one.name for one in llm.config.plan.of("seam.counters")] == ["double"]


def test_one_that_does_not_fit_stops_the_start(installed, llama):
    installed("counts")
    with pytest.raises(CoreError, match="CORE-P160") as caught:
        LLM(llama, **options(counter="double"))
    assert "counter 'double' (seam-double 1.0)" in str(caught.value) and "it lacks count(tokens)" in str(caught.value)
