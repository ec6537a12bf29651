"""DeepGEMM's products of float8, as its documentation describes them: one card or the other."""

from __future__ import annotations

import torch

from tests.seams.libraries.reference import module, need

TILE = 16
"""What segments are whole multiples of; 128 on a card."""


def install(monkeypatch, *, blackwell=False):
    """Install `deep_gemm`; return the rows of each grouped product."""
    grouped = []

    def transform_sf_into_required_layout(sf, mn, k, recipe, num_groups=None, is_sfa=False, disable_ue8m0_cast=False):
        need(blackwell and not is_sfa and recipe == (1, 128, 128), "only Blackwell wants scales of weights packed")
        need(sf.dtype == torch.float32 and sf.shape == (num_groups, -(-mn // 128), -(-k // 128)), f"{tuple(sf.shape)}")
        mantissa, exponent = torch.frexp(sf)
        need(bool((mantissa == 0.5).all()), "powers of two")
        return (exponent + 126).int().repeat_interleave(128, 1)[:, :mn].contiguous()

    def scales_of(sf, size, runs, of_weights):
        """Return a scale for each row and run, `(rows, runs)`."""
        if blackwell and of_weights:
            need(sf.dtype == torch.int32 and sf.shape[-2:] == (size, runs), "packed scales")
            return torch.ldexp(torch.ones(sf.shape), sf - 127)
        rows = -(-size // 128) if of_weights else size
        need(sf.dtype == torch.float32 and sf.shape[-2:] == (rows, runs), f"scales {tuple(sf.shape)}")
        if blackwell:
            need(bool((torch.frexp(sf)[0] == 0.5).all()), "scales are powers of two")
        return sf.repeat_interleave(128, -2)[..., :size, :] if of_weights else sf

    def opened(pair, of_weights):
        codes, sf = pair
        need(codes.dtype == torch.float8_e4m3fn and codes.is_contiguous(), "codes are dense float8")
        need(codes.shape[-1] % 128 == 0, "runs of 128 inputs")
        scales = scales_of(sf, codes.shape[-2], codes.shape[-1] // 128, of_weights)
        return codes.float() * scales.repeat_interleave(128, -1)

    def check(a, d, n, disable_ue8m0_cast):
        need(disable_ue8m0_cast is not blackwell, "float32 scales on Hopper, powers of two on Blackwell")
        need(d.dtype == torch.bfloat16 and d.shape == (a[0].shape[0], n) and d.is_contiguous(), "the result")
        need(n % 8 == 0 and a[0].shape[0] > 0, f"{n} outputs")

    def fp8_gemm_nt(a, b, d, c=None, recipe=None, compiled_dims="nk", disable_ue8m0_cast=False):
        need(b[0].dim() == 2, "no groups")
        check(a, d, b[0].shape[0], disable_ue8m0_cast)
        packed = b[1][0] if b[1].dim() == 3 and b[1].shape[0] == 1 else b[1]
        d.copy_(opened(a, False) @ opened((b[0], packed), True).T)

    def m_grouped_fp8_gemm_nt_contiguous(a, b, d, m_indices, recipe=None, compiled_dims="nk", disable_ue8m0_cast=False):
        need(m_indices.dtype == torch.int32 and m_indices.shape == a[0].shape[:1], "an expert for each row")
        check(a, d, b[0].shape[1], disable_ue8m0_cast)
        need(len(m_indices) % TILE == 0, "whole tiles")
        for tile in m_indices.view(-1, TILE):
            real = tile[tile >= 0]
            need(len(set(real.tolist())) <= 1 and (len(real) == 0 or tile[0] >= 0), "one expert in a tile, rows first")
        grouped.append(len(m_indices))
        x, weights = opened(a, False), opened(b, True)
        d.fill_(torch.nan)  # rows that are skipped are not written
        for row, expert in enumerate(m_indices.tolist()):
            if expert >= 0:
                d[row] = (x[row] @ weights[expert].T).to(d.dtype)

    module(
        monkeypatch,
        "deep_gemm",
        transform_sf_into_required_layout=transform_sf_into_required_layout,
        fp8_gemm_nt=fp8_gemm_nt,
        m_grouped_fp8_gemm_nt_contiguous=m_grouped_fp8_gemm_nt_contiguous,
        get_mk_alignment_for_contiguous_layout=lambda: TILE,
    )
    return grouped
