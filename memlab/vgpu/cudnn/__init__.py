"""cuDNN, asked on a machine without a GPU: the workspaces of convolutions.

cuDNN chooses among many kernels for a convolution, and most of them need a workspace while they run: a third of VGG16's
memory. Nobody but cuDNN knows which. Since 9.8 it makes its plans for a card that is described to it, so it is asked:

| file | what it does |
|---|---|
| ``convolution.py`` | what is asked: one convolution, as ATen asks |
| ``answers.py`` | the answer: what was asked before, what ships with memlab, else cuDNN itself |
| ``client.py`` | the process that cuDNN runs in: a fault there is no fault here |
| ``__main__.py`` | that process |
| ``plans.py`` | ATen's way from a convolution to a plan |
| ``backend.py`` | cuDNN's backend API |
| ``installed.py`` | where a cuDNN is, and of which version |
| ``stubs.py``, ``elf.py`` | what cuDNN wants to find beside it, and does not need |

Nothing here imports PyTorch.
"""
