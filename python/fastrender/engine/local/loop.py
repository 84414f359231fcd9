"""`BatchThread`: the one thread that touches the model."""

import collections
import dataclasses
import logging
import threading
from collections.abc import Callable

import torch

from fastrender.engine.local.batch import Batch
from fastrender.engine.local.sequence import Finish, Job, Progress
from fastrender.engine.local.vision import Embedding, Picture, Tower

_logger = logging.getLogger(__name__)

Embedded = Callable[[dict[str, Embedding] | BaseException], None]


@dataclasses.dataclass(slots=True, eq=False)
class _Wanted:
    """Images that somebody waits for, and those of their embeddings that are there."""

    pictures: list[Picture]
    done: Embedded
    ready: dict[str, Embedding] = dataclasses.field(default_factory=dict)

    def missing(self) -> list[Picture]:
        return [picture for picture in self.pictures if picture.key not in self.ready]


class BatchThread:
    """Runs a batch, and a vision tower between its steps, until closed. Any thread may call."""

    def __init__(self, batch: Batch | None, tower: Tower | None) -> None:
        """Either may be lacking: an encode worker has no batch, a text model no tower."""
        self._batch = batch
        self._tower = tower
        self._wake = threading.Condition()
        self._jobs: collections.deque[Job] = collections.deque()
        self._pictures: collections.deque[_Wanted] = collections.deque()
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def failure(self) -> BaseException | None:
        """Why this does not run any more, if it ought to."""
        return self._failure

    def start(self) -> None:
        """Start running."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the step that is under way."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def submit(self, job: Job) -> None:
        """Add a request to the batch; its `deliver` is told what comes."""
        with self._wake:
            if not self._closed:
                self._jobs.append(job)
                self._wake.notify()
                return
        error = self._failure or RuntimeError("the engine was closed")
        job.deliver(
            job, [Progress(index=i, finish=Finish.ERROR, error=error) for i in range(job.params.n)]
        )

    def cancel(self, job: Job) -> None:
        """Nobody waits for `job` any more."""
        job.cancelled = True
        with self._wake:
            self._wake.notify()

    def end(self, job: Job, index: int) -> None:
        """Nobody waits for one of the outputs of `job` any more."""
        job.ended.add(index)
        with self._wake:
            self._wake.notify()

    def embed(self, pictures: list[Picture], done: Embedded) -> None:
        """Run the tower over what it has not seen; `done` gets embeddings by key, or an error."""
        with self._wake:
            if not self._closed:
                self._pictures.append(_Wanted(pictures, done))
                self._wake.notify()
                return
        done(self._failure or RuntimeError("the engine was closed"))

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while self._wait():
                    self._embed()
                    self._step()
        except BaseException as error:
            # What a step cannot mend; whoever waits is told, and the server says it is not well.
            _logger.exception("the engine's thread ends")
            self._failure = error
        finally:
            self._abandon()

    def _wait(self) -> bool:
        """Take what has come; whether to go on."""
        with self._wake:
            while not self._closed and not self._jobs and not self._pictures and self._idle:
                self._wake.wait()
            if self._batch is not None:
                while self._jobs:
                    self._batch.add(self._jobs.popleft())
            return not self._closed

    @property
    def _idle(self) -> bool:
        return self._batch is None or self._batch.idle

    def _embed(self) -> None:
        """Run the tower once, over what several requests may have brought."""
        if self._tower is None:
            return
        with self._wake:
            requests = list(self._pictures)
        if not requests:
            return
        try:
            found = self._tower.embed([p for request in requests for p in request.missing()])
        except Exception as error:
            _logger.exception("the vision tower failed")
            with self._wake:
                self._pictures.popleft()
            requests[0].done(error)
            return
        for request in requests:
            for picture in request.missing():
                if (embedding := found.get(picture.key)) is not None:
                    request.ready[picture.key] = embedding
            if not request.missing():
                with self._wake:
                    self._pictures.remove(request)
                request.done(request.ready)

    def _step(self) -> None:
        batch = self._batch
        if batch is None or batch.idle:
            return
        try:
            said = batch.step()
        except Exception as error:
            _logger.exception("a step of the batch failed")
            said = batch.fail_all(error)
        for job, progress in said:
            job.deliver(job, progress)

    def _abandon(self) -> None:
        """Tell whoever still waits."""
        error = self._failure or RuntimeError("the engine was closed")
        with self._wake:
            self._closed = True
            while self._jobs and self._batch is not None:
                self._batch.add(self._jobs.popleft())
            pictures = list(self._pictures)
            self._pictures.clear()
        if self._batch is not None:
            for job, progress in self._batch.fail_all(error):
                job.deliver(job, progress)
        for request in pictures:
            request.done(error)
