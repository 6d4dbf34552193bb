"""Workspaces of cuBLAS."""

import torch

aten = torch.ops.aten

# Operators that multiply matrices with cuBLAS: each thread's first one allocates that thread's workspace, for good.
MATMULS = {
    getattr(aten, name)
    for name in ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "_addmm_activation", "_int_mm")
}
