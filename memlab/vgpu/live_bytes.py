"""The bytes of storages, as long as they live."""

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef


class LiveBytes:
    """Adds up the bytes of tensors' storages, and forgets those that are gone."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}  # by address

    def add(self, tensor: Tensor) -> int:
        """Return the bytes of all that live, with this tensor's, which count once."""
        storage = tensor.untyped_storage()
        ref = StorageWeakRef(storage)
        self._known = {address: known for address, known in self._known.items() if not known[0].expired()}
        self._known[ref.cdata] = ref, storage.nbytes()
        return sum(nbytes for _, nbytes in self._known.values())
