"""A worker half that overrides every moment and fails at one of them."""

import numpy as np

from core.api import AllowedTokens, WorkerParticipant
from seam_participant.parts import Stocked

WRONG = {
    "begin": [10**6],
    "inputs": None,
    "allow": AllowedTokens(np.zeros(1, np.int32), np.zeros((1, 1), np.int32)),
    "end": {"stocked": "many"},
}


class BrittleWorker(WorkerParticipant):
    def __init__(self, setup):
        super().__init__(setup)
        self._at, self._wrong, self._left = setup.options["at"], setup.options["wrong"], 1

    def _moment(self, name, otherwise=None):
        once = name not in ("inputs", "allow") or self._left
        if name in (self._at, self._wrong):
            self._left = 0
        if self._at == name and once:
            raise RuntimeError(f"{name} is broken")
        return WRONG[name] if self._wrong == name and once else otherwise

    def begin(self, plan):
        return self._moment("begin")

    def inputs(self, plan, step):
        return self._moment("inputs", step)

    def allow(self, plan, late):
        return self._moment("allow", late)

    def sampled(self, step):
        assert len(step.tokens) == len(step.rows)
        self._moment("sampled")

    def end(self, plan, result):
        result.parts[self.name] = self._moment("end", Stocked(plan.rows.astype(np.int64), 0))

    def close(self):
        self._moment("close")
