"""Collectives: one rank alone, a group of two processes over gloo, and a library that torch lacks."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from core_plugin_accelerator.collectives import Alone, Group, has

from core.api.errors import EngineError


def test_one_rank_has_everything():
    alone, tensor = Alone(), torch.arange(6.0).view(2, 3)
    found = [alone.all_reduce(tensor), alone.all_gather(tensor, 1), alone.all_to_all(tensor, [2])]
    assert (alone.rank, alone.world_size) == (0, 1)
    assert all(torch.equal(one, tensor) for one in [*found, alone.broadcast(tensor, 0)])
    alone.barrier()
    alone.close()


@pytest.mark.covers("PLAT-02")
def test_a_group_over_a_library_that_torch_lacks_names_it(monkeypatch):
    monkeypatch.setattr(dist, "is_xccl_available", lambda: False)
    assert not has("xccl") and not has("unheard_of")
    with pytest.raises(EngineError, match=r"2 ranks on cpu devices exchange by XCCL, which torch .* lacks") as refused:
        Group("xccl", torch.device("cpu"), None, 0, 2)
    assert refused.value.code == "CORE-E138"


EXCHANGE = """
import sys
import torch
import torch.distributed as dist
from core_plugin_accelerator.collectives import Group

rank, folder = int(sys.argv[1]), sys.argv[2]
group = Group("gloo", torch.device("cpu"), dist.FileStore(f"{folder}/store", 2), rank, 2)
own = torch.arange(6.0).view(2, 3) + 10 * rank
assert torch.equal(group.all_reduce(own), torch.arange(6.0).view(2, 3) * 2 + 10)
assert torch.equal(own, torch.arange(6.0).view(2, 3) + 10 * rank)  # what was given stays
both = [torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3) + 10]
for dim in (0, 1, -1):
    assert torch.equal(group.all_gather(own, dim), torch.cat(both, dim)), dim
small = own.to(torch.float8_e4m3fn)
assert torch.equal(group.all_gather(small, 0).float(), torch.cat(both).to(torch.float8_e4m3fn).float())
rows = torch.arange(3.0).view(3, 1) + 10 * rank
found = group.all_to_all(rows, [1, 2] if rank == 0 else [3, 0])
assert found.flatten().tolist() == ([0.0, 10.0, 11.0, 12.0] if rank == 0 else [1.0, 2.0]), found
assert torch.equal(group.broadcast(own, 1), both[1])
group.barrier()
group.close()
group.close()
"""


@pytest.mark.timeout(120)
def test_two_processes_exchange(tmp_path):
    words = [[sys.executable, "-c", EXCHANGE, str(rank), str(tmp_path)] for rank in range(2)]
    ranks = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in words]
    try:
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], said
