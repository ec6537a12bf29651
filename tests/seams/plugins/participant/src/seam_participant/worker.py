"""Worker halves of the shop and the choir."""

from core.api import WorkerParticipant
from seam_participant.parts import Stocked


class ShopWorker(WorkerParticipant):
    def __init__(self, setup):
        super().__init__(setup)
        self._stock, self._orders = set(), None

    def begin(self, plan):
        self._orders = plan.parts.get(self.name)
        if self._orders is not None:
            assert self._orders.note == "to the shop"
            self._stock |= set(self._orders.items.tolist())

    def end(self, plan, result):
        if self._orders is not None:
            result.parts[self.name] = Stocked(self._orders.items, len(self._stock))

    def calls(self):
        return {"shop_stock": lambda: sorted(self._stock)}


class ChoirWorker(WorkerParticipant):
    def allow(self, plan, late):
        return late
