"""`<module>.pairs (outputs, inputs / 2)` uint8, `.scale` float16 and `.zero` uint8 `(outputs, groups of 48)`."""

import torch

from core.api import PLAIN, Part, Stored, WeightForm

GROUPS = WeightForm(codes="int", bits=4, inputs=48, zeros=True)


class Pairs48:
    def __init__(self, ctx):
        self.dtype = ctx.dtype

    def form(self, site, part):
        return GROUPS if site.kind == "linear" else PLAIN

    def stored(self, site, part):
        if site.kind != "linear":
            return [Stored("weight")]
        return [Stored("pairs", per=(1, 2)), Stored("scale", per=(1, 48)), Stored("zero", per=(1, 48))]

    def read(self, site, part, tensors):
        if site.kind != "linear":
            return Part(PLAIN, tensors["weight"].dense(self.dtype))
        pairs = tensors["pairs"].raw()
        codes = torch.empty(pairs.shape[0], 2 * pairs.shape[1], dtype=torch.uint8)
        codes[:, ::2], codes[:, 1::2] = pairs & 15, pairs >> 4
        return Part(GROUPS, codes, tensors["scale"].dense(torch.float32), tensors["zero"].raw())
