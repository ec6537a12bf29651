"""Requests of `item:N` wait until the worker half has item N; it decides what their tokens mean."""

import numpy as np

from core.api import Participant
from seam_participant.parts import Orders


class Shop(Participant):
    def __init__(self, setup):
        super().__init__(setup)
        self._ordered, self._ready, self._owed, self._asked = [], set(), 0, 0

    def arrive(self, request):
        word, _, rest = request.caller.user.partition(":")
        if word == "banned":
            raise ValueError("the shop serves no such caller")
        if word == "item":
            request.hash_root += b"item" + rest.encode()
        if word == "mark":
            request.extras[1] = rest.encode()

    def admit(self, request):
        word, _, rest = request.caller.user.partition(":")
        if word == "unwelcome":
            raise ValueError("the shop has changed its mind")
        if word != "item" or int(rest) in self._ready:
            return True
        self._asked += 1
        if int(rest) not in self._ordered:
            self._ordered.append(int(rest))
            self._owed += 1
        return False

    def pending(self):
        return self._owed > 0

    def plan(self, plan):
        if self._ordered:
            fresh = [item for item in self._ordered if item not in self._ready]
            plan.parts[self.name] = Orders(np.array(fresh, np.int64))

    def collect(self, plan, result):
        part = result.parts.get(self.name)
        if part is not None:
            assert part.items.dtype == np.int64
            came = set(part.items.tolist()) - self._ready
            self._owed -= len(came)
            self._ready |= came
            self._ordered = [item for item in self._ordered if item not in self._ready]

    def calls(self):
        return {"shop_items": lambda: sorted(self._ready)}

    def stats(self):
        return {"held": int(self._asked > 0), "items": sorted(self._ready)}
