import sys, torch
from tests.vgpu.compiled.loops import *
from functools import partial
def run(name, mode):
    torch.manual_seed(0)
    make={"gpt":small_gpt,"llama":small_llama}[name]
    loop=trained("cuda",make=make,batches=[text(4,128)],mode=mode) if mode else trained("cuda",make=make,batches=[text(4,128)])
    for i in range(8):
        torch.cuda.reset_peak_memory_stats()
        next(loop)
        print(name,mode,i,torch.cuda.max_memory_allocated(),torch.cuda.memory_allocated(),torch.cuda.max_memory_reserved(),torch.cuda.memory_reserved())
    del loop
run(sys.argv[1], sys.argv[2] if len(sys.argv)>2 else None)
