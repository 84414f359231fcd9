"""An open file that several processes share, though it has no name."""

import multiprocessing.reduction
from typing import Any


class SharedFile:
    """An open file that the processes which are started with it have open too."""

    def __init__(self, descriptor: int) -> None:
        """Share the file of `descriptor`."""
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand a copy of the descriptor to the process that is being started."""
        return _shared_file, (multiprocessing.reduction.DupFd(self.descriptor),)


def _shared_file(duplicate: Any) -> SharedFile:
    return SharedFile(duplicate.detach())
