"""A bounded lane of threads for work that would hold up the event loop."""

import asyncio
import collections
import concurrent.futures
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from starlette.types import Receive

T = TypeVar("T")


class QueueFullError(Exception):
    """As many requests wait as may."""


class ClientGoneError(Exception):
    """The client went away before its request was worked on."""


class WorkLane:
    """Runs functions on `workers` threads; at most `queue_limit` requests wait for one.

    For one event loop. Work for clients that go away while they wait is dropped.
    """

    def __init__(self, workers: int, queue_limit: int) -> None:
        """Threads start with the first work."""
        self._idle = workers
        self._queue_limit = queue_limit
        self._queue: collections.deque[asyncio.Future[None]] = collections.deque()
        self._threads = concurrent.futures.ThreadPoolExecutor(workers, "render")

    @property
    def queue_length(self) -> int:
        """Requests that wait for a thread."""
        return len(self._queue)

    async def run(self, receive: Receive, function: Callable[[], T]) -> T:
        """The result of `function` on a thread; `receive` tells whether the client still waits."""
        if self._idle > 0:
            self._idle -= 1
        elif len(self._queue) >= self._queue_limit:
            raise QueueFullError
        else:
            await self._wait(receive)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)
        finally:
            self._release()

    def close(self) -> None:
        """Take no more work; work under way goes on."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait(self, receive: Receive) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone = asyncio.ensure_future(disconnected(receive))
        self._queue.append(turn)
        try:
            await asyncio.wait({turn, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise ClientGoneError("queued")
        except BaseException:
            if turn.done():
                self._release()
            else:
                self._queue.remove(turn)
            raise
        finally:
            gone.cancel()

    def _release(self) -> None:
        """Hand a free thread to who has waited longest."""
        if self._queue:
            self._queue.popleft().set_result(None)
        else:
            self._idle += 1


@contextlib.asynccontextmanager
async def while_connected(receive: Receive) -> AsyncIterator[None]:
    """Cancel the block when the client goes away; `ClientGoneError` comes out of it then."""
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    cancelled_before = task.cancelling()
    left = False

    def leave(gone: asyncio.Task[None]) -> None:
        nonlocal left
        left = True
        task.cancel()

    gone = asyncio.create_task(disconnected(receive))
    gone.add_done_callback(leave)
    try:
        yield
    except asyncio.CancelledError:
        if left and task.uncancel() <= cancelled_before:
            raise ClientGoneError("generating") from None
        raise
    finally:
        gone.remove_done_callback(leave)
        gone.cancel()


async def disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
