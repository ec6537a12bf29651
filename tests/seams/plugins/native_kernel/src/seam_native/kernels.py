"""A kernel in C++, called through an entry like the CPU plugin's own."""

import ctypes
import os
from functools import cache

import torch
from core_plugin_cpu.native.entry import Entry


@cache
def library():
    return ctypes.CDLL(os.environ["SEAM_NATIVE_LIBRARY"])


FIELDS = {"pointers": "x out", "sizes": "rows size", "library": library}
SILU = Entry("seam_silu", slots={"rows": "tokens"}, **FIELDS)
WITHOUT_SLOT = Entry("seam_silu", **FIELDS)


def call(entry, x):
    x = x.contiguous()
    out = torch.empty(x.shape[0], x.shape[1] // 2, dtype=x.dtype)
    entry(x.data_ptr(), out.data_ptr(), *out.shape)
    return out


def silu_and_mul(x):
    return call(SILU, x)


def unslotted(x):
    return call(WITHOUT_SLOT, x)


def calls():
    return ctypes.c_int64.in_dll(library(), "seam_calls").value
