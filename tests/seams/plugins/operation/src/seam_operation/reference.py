"""The operations in plain torch: what their kernels are held to."""

import torch
from torch.nn import functional

from core.api import Product


def mix(x, y, *, share=0.5):
    """`(tokens, size)` twice -> their mean, weighted."""
    return torch.lerp(y, x, share)


class Bilinear(Product):
    """`left (tokens, a)`, `right (tokens, b)` -> `sum W[:, i * b + j] * left_i * right_j`, for weights in any form."""

    def sizes(self):
        site = self.place.site
        return {"weight": ((site.rows, site.in_features), self.place.dtype)}

    def pack(self, part, index, out):
        start = sum(rows for _, rows in self.place.site.parts[:index])
        dense = part.dense(self.place.dtype)
        out["weight"].narrow(0, start, len(dense)).copy_(dense)

    def apply(self, left, right, params):
        pairs = left[:, :, None] * right[:, None, :]
        return functional.linear(pairs.flatten(1), params["weight"])
