"""An engine half that overrides every moment and fails at one of them."""

import numpy as np

from core.api import AllowedTokens, Participant
from seam_participant.parts import Orders

WRONG = {
    "supply": "all",
    "settle": {99: "no"},
    "stats": {"half": 0.5},
    "finished": 5,
    "late": "masks",
}


class Brittle(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        self._words = -(-setup.vocab_size // 32)
        self._at, self._wrong, self._left = setup.options["at"], setup.options["wrong"], 1

    def _moment(self, name, otherwise=None):
        # What ends the requests of its step happens once, so that it can be seen that the next ones are served.
        if self._at == name and (name != "late" or self._once()):
            raise RuntimeError(f"{name} is broken")
        return WRONG[name] if self._wrong == name and (name != "late" or self._once()) else otherwise

    def _once(self):
        self._left -= 1
        return self._left == 0

    def arrive(self, request):
        if request.caller.user == "victim":
            self._moment("arrive")

    def admit(self, request):
        if request.caller.user == "victim":
            self._moment("admit")
        return True

    def supply(self, request, hashes, local_blocks):
        return self._moment("supply", 1 if self._at == "place" else 0)

    def place(self, request, supplied):
        return self._moment("place", False)

    def publish(self, blocks):
        self._moment("publish")

    def run(self, request):
        self._moment("run")

    def leave(self, request):
        self._moment("leave")

    def pending(self):
        return self._moment("pending", False)

    def plan(self, plan):
        plan.parts[self.name] = {"items": 5} if self._wrong == "plan" else Orders(plan.rows.astype(np.int64))
        if "late" in (self._at, self._wrong) or "allow" in (self._at, self._wrong):
            plan.late.append(self.name)
        self._moment("plan")

    def late(self, plan, alive):
        return self._moment("late", AllowedTokens(np.zeros(0, np.int32), np.zeros((0, self._words), np.int32)))

    def collect(self, plan, result):
        self._moment("collect")

    def settle(self, requests, tokens):
        return self._moment("settle", {})

    def finished(self, request):
        return self._moment("finished")

    def finish(self, request):
        self._moment("finish")

    def reset(self):
        self._moment("reset")

    def stats(self):
        return self._moment("stats", {})

    def close(self):
        self._moment("close")


class Misspelt(Participant):
    def settel(self, requests, tokens):
        return {}
