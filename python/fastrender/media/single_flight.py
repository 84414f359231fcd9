"""One run of the same work for all who ask for it at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Runs work by key; who asks while it runs gets its outcome. Nothing is kept afterwards."""

    def __init__(self) -> None:
        """Nothing is in flight."""
        self._flights: dict[str, Future[T]] = {}
        self._lock = threading.Lock()

    def run(self, key: str, work: Callable[[], T], *, patience: float) -> T:
        """The outcome of `work`, of this call's or of the one in flight.

        Its error is raised in all who wait. They raise `TimeoutError` after `patience` seconds.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                mine = self._flights[key] = Future()
        if flight is not None:
            return flight.result(patience)
        try:
            result = work()
        except BaseException as error:
            self._land(key)
            mine.set_exception(error)
            raise
        self._land(key)
        mine.set_result(result)
        return result

    def _land(self, key: str) -> None:
        with self._lock:
            del self._flights[key]
