"""Single steps of latent layers beside the definition in float64: what no token owns is not a number."""

from __future__ import annotations

import numpy as np
import torch

from core.api.attention import BatchView, LatentSite
from core.api.steps import StepShape
from tests.seams.libraries.steps import context


def latent_site(heads=4, latent_dim=24, rope_dim=8, key_dim=10, value_dim=7, **extra):
    return LatentSite(0, heads, latent_dim, rope_dim, key_dim, value_dim, (key_dim + rope_dim) ** -0.5, **extra)


class LatentStep:
    """A step over a cache with history; `rows` are `(context, new)`.

    Attributes:
        batch: The step.
        cache: With the past of each row, and no number elsewhere.
        kept: Latents and rotated keys of each row, those of the step behind its past.
        q: `(tokens, heads, key_dim + rope_dim)`.
    """

    def __init__(self, rows, site, layout, size, seed=0):
        rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.rows, self.site = rows, site
        width = site.latent_dim + site.rope_dim
        blocks = [-(-sum(row) // size) for row in rows]
        order = rng.permutation(np.arange(1, sum(blocks) + 3))
        tables = np.full((len(rows), max(blocks, default=0) + 2), order[-1], dtype=np.int32)
        self.cache = torch.full((len(order) + 1, *layout.block_shape), torch.nan, dtype=layout.dtype)
        self.kept = [torch.randn(sum(row), width).to(layout.dtype) for row in rows]
        slots, taken = [torch.empty(0, dtype=torch.int64)], 0
        for row, (past, new) in enumerate(rows):
            mine = tables[row, : blocks[row]] = order[taken : taken + blocks[row]]
            taken += blocks[row]
            places = np.arange(past + new)
            own = torch.from_numpy(mine[places // size].astype(np.int64) * size + places % size)
            self.cache.view(-1, width)[own[:past]] = self.kept[row][:past]
            slots.append(own[past:])
        counts, lengths = [new for _, new in rows], [sum(row) for row in rows]
        self.batch = BatchView(
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            np.array(lengths, dtype=np.int32),
            torch.from_numpy(tables),
            torch.cat(slots),
            max(counts, default=0),
            max(lengths, default=0),
        )
        self.q = torch.randn(sum(counts), site.num_heads, site.key_dim + site.rope_dim)

    def run(self, backend, layer, fixed):
        """Write and attend; return `(tokens, heads * value_dim)`."""
        site, rows = self.site, len(self.rows)
        if fixed:
            plan = backend.fixed_plan(StepShape(rows, rows, 1, 64))
            width = getattr(plan, "paged", plan).tables.shape[1]
            tables = torch.zeros(rows, width, dtype=torch.int32)
            have = min(width, self.batch.block_tables.shape[1])
            tables[:, :have] = self.batch.block_tables[:, :have]
            given = {name: getattr(self.batch, name) for name in self.batch.__slots__} | {"block_tables": tables}
            backend.refresh(plan, BatchView(**given))
        else:
            plan = backend.plan(self.batch)
        new = [one[past:] for one, (past, _) in zip(self.kept, self.rows)]
        fresh = torch.cat([*new, torch.empty(0, site.latent_dim + site.rope_dim)])
        layer.write(*fresh.split_with_sizes((site.latent_dim, site.rope_dim), dim=1), self.cache, plan)
        return layer.forward(*self.q.split_with_sizes((site.key_dim, site.rope_dim), dim=2), self.cache, plan)

    def due(self, key, value):
        """Return the same by definition."""
        site, token = self.site, 0
        out = torch.zeros(len(self.q), site.num_heads, site.value_dim, dtype=torch.float64)
        for kept, (past, new) in zip(self.kept, self.rows):
            for place in range(past, past + new):
                latents, rotated = kept[: place + 1].double().split_with_sizes((site.latent_dim, site.rope_dim), dim=1)
                own = torch.einsum("hkl,pl->hpk", key.double(), latents)
                keys = torch.cat((own, rotated.expand(len(own), -1, -1)), dim=2)
                shares = torch.softmax(torch.einsum("hpd,hd->hp", keys, self.q[token].double()) * site.scale, 1)
                out[token] = torch.einsum("hp,pl,hlv->hv", shares, latents, value.double())
                token += 1
        return out.flatten(1).float()


def same_latents(make, rows, *, site=None, size=16, fixed=False, options=None):
    """Compare a step of latent layers with their definition; return the backend.

    Args:
        make: Returns a backend of a context.
    """
    site, backend = site or latent_site(), make(context(size, options=options))
    layer = backend.latent(site)
    torch.manual_seed(3)
    key = torch.randn(site.num_heads, site.key_dim, site.latent_dim) * site.latent_dim**-0.5
    value = torch.randn(site.num_heads, site.latent_dim, site.value_dim) * site.latent_dim**-0.5
    layer.use_up(key, value)
    step = LatentStep(rows, site, backend.latent_layout(site), size)
    torch.testing.assert_close(step.run(backend, layer, fixed), step.due(key, value), atol=1e-5, rtol=1e-4)
    return backend
