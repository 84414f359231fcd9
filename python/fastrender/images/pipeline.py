"""From a request that waits for images to its answer."""

import concurrent.futures
import contextlib
import functools
import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from fastrender._native import Image, ImageProcessor, MediaHasher, Pending
from fastrender.config import RenderConfig
from fastrender.errors import BusyError, RequestError, request_error
from fastrender.images.cache import ImageCache
from fastrender.media import (
    DecodeOptions,
    Fetcher,
    Header,
    MediaLimits,
    RequestBudget,
    decode_rgb,
    read_header,
    tells_all,
)
from fastrender.model_folder.image_processor import ImageProcessing, OptionError, refused_options

_GIBIBYTE = 1 << 30
# Below the threads that render text, which must not wait for pixels.
_NICENESS = 10
_OTHER_PROCESSORS = 64


class ImagePipeline:
    """Fetches on threads of their own, and decodes and processes on one thread for each core.

    Slow URLs hold up neither each other nor images that came with their requests, and no image
    holds up text.
    """

    def __init__(
        self, processing: ImageProcessing, config: RenderConfig, max_model_len: int
    ) -> None:
        """Raises `ConfigError` for settings of fetching that cannot be."""
        cores = os.cpu_count() or 1
        self.fetcher = Fetcher(config)
        self.limits = MediaLimits.from_config(config)
        self.cache = ImageCache(int(config.mm_processor_cache_gb * _GIBIBYTE))
        self.max_model_len = max_model_len
        self.verifies = config.verify_media
        self._processing = processing
        self._io_kwargs: Mapping[str, Any] = config.media_io_kwargs
        self._hasher = MediaHasher(config.mm_hasher_algorithm, config.model)
        self._processor = functools.lru_cache(_OTHER_PROCESSORS)(self._make_processor)
        self._fetching = concurrent.futures.ThreadPoolExecutor(config.media_fetch_threads, "fetch")
        self._working = concurrent.futures.ThreadPoolExecutor(cores, "image", _be_nice)
        # What was fetched waits here rather than in memory.
        self._fetched = threading.BoundedSemaphore(2 * cores)
        self._places = threading.BoundedSemaphore(cores + config.request_queue_limit)

    def start(self, pending: Pending) -> "Job":
        """Begin to work on a request; `BusyError` if too many wait already."""
        if not self._places.acquire(blocking=False):
            raise BusyError
        try:
            job = Job(self, pending)
        except BaseException:
            self._places.release()
            raise
        job.answer.add_done_callback(lambda _: self._places.release())
        job.start()
        return job

    def plan(self, pending: Pending) -> bytes | memoryview | None:
        """The answer to a request that wants no tensors, if headers are all that it takes."""
        return None if self.verifies else Job(self, pending).planned()

    def close(self) -> None:
        """Take no more work."""
        self._fetching.shutdown(wait=False, cancel_futures=True)
        self._working.shutdown(wait=False, cancel_futures=True)
        self.fetcher.close()

    def processor(self, options: str | None) -> ImageProcessor:
        """The processor for a request's `mm_processor_kwargs`, as JSON."""
        return self._processor(options)

    def decode_options(self, kwargs: str | None) -> tuple[DecodeOptions, str | None]:
        """How to decode, and the merged `media_io_kwargs` as JSON, for hashing."""
        merged = dict(self._io_kwargs)
        for modality, options in (json.loads(kwargs) if kwargs else {}).items():
            below = merged.get(modality)
            if isinstance(options, dict) and isinstance(below, dict):
                options = {**below, **options}
            merged[modality] = options
        image = merged.get("image") or {}
        if not isinstance(image, dict):
            raise request_error(
                "media_io_kwargs must hold an object for each modality",
                "BadRequestError",
                "media_io_kwargs",
                400,
            )
        return DecodeOptions.from_kwargs(image), json.dumps(merged) if merged else None

    def hash_image(
        self, data: bytes, io_config: Mapping[str, Any] | None, io: str | None, mm: str | None
    ) -> str:
        """The hash of an encoded image and of what changed it."""
        config = None
        if io_config is not None:
            mode, background = io_config["image_mode"], io_config["rgba_background_color"]
            config = (mode, background)
        return self._hasher.image(data, config, io, mm)

    def hash_name(self, name: str, io: str | None, mm: str | None) -> str:
        """The hash of an image that the client named."""
        return self._hasher.uuid("image", name, io, mm)

    def submit_fetch(self, job: "Job", index: int) -> None:
        """Fetch on a thread for that, then process."""
        self._fetching.submit(self._fetch, job, index)

    def submit_work(self, job: "Job", index: int) -> None:
        """Process what came with the request."""
        self._working.submit(job.work, index, None)

    def _fetch(self, job: "Job", index: int) -> None:
        data = job.fetch(index)
        if data is None:
            return
        with self._fetched, contextlib.suppress(concurrent.futures.CancelledError):
            self._working.submit(job.work, index, data).result()

    def _make_processor(self, options: str | None) -> ImageProcessor:
        processing = self._processing
        if options is not None:
            try:
                processing = processing.with_options(json.loads(options))
            except OptionError as error:
                raise refused_options(error) from error
        return ImageProcessor(json.dumps(processing.spec()).encode())


class Job:
    """One request's images; `answer` is its response once all of them are ready."""

    def __init__(self, pipeline: ImagePipeline, pending: Pending) -> None:
        """`start` begins it."""
        self.answer: concurrent.futures.Future[bytes | memoryview]
        self.answer = concurrent.futures.Future()
        self._pipeline = pipeline
        self._pending = pending
        self._media = pending.media
        self._budget = RequestBudget(pipeline.limits)
        self._mm = pending.mm_processor_kwargs
        self._options, self._io = pipeline.decode_options(pending.media_io_kwargs)
        self._processor = pipeline.processor(self._mm)
        self._ready: list[tuple[str, Image] | BaseException | None] = [None] * len(self._media)
        self._left = len(self._media)
        self._lock = threading.Lock()
        self._cancelled = False

    def start(self) -> None:
        """Hand each image to a thread."""
        for index, medium in enumerate(self._media):
            # Data URLs are decoded where they are processed: that costs less than a fetch.
            fetched = not medium.is_empty and not self._pending.is_data(index)
            submit = self._pipeline.submit_fetch if fetched else self._pipeline.submit_work
            submit(self, index)

    def planned(self) -> bytes | memoryview | None:
        """The answer without any pixel; `None` if something must be fetched or decoded for it."""
        ready = []
        for index, medium in enumerate(self._media):
            if medium.is_empty or not self._pending.is_data(index):
                return None
            data = self._data(index)
            if not tells_all(data):
                return None
            ready.append(self._plan(index, data)[1:])
        return self._pending.finish(ready)

    def cancel(self) -> None:
        """Nobody waits for the answer any more: start no further step."""
        self._cancelled = True

    def fetch(self, index: int) -> bytes | None:
        """The bytes that a URL means; `None` if there are none to work on."""
        if self._cancelled:
            self._settle(index, concurrent.futures.CancelledError())
            return None
        try:
            url = self._pending.url(index)
            return self._pipeline.fetcher.fetch(url, "image", budget=self._budget)
        except BaseException as error:
            self._settle(index, error)
            return None

    def work(self, index: int, data: bytes | None) -> None:
        """Make an image of its bytes, and the answer if it was the last one."""
        result: tuple[str, Image] | BaseException
        if self._cancelled:
            result = concurrent.futures.CancelledError()
        else:
            try:
                result = self._image(index, data)
            except BaseException as error:
                result = error
        self._settle(index, result)

    def _image(self, index: int, data: bytes | None) -> tuple[str, Image]:
        medium = self._media[index]
        pipeline = self._pipeline
        name = self._name(index)
        if medium.is_empty:
            image = pipeline.cache.named(name) if name is not None else None
            if image is None:
                raise _refused(f"image {index} has no data, and is not known by its uuid")
            return name or "", image
        if data is None:
            data = self._data(index)
        key, told, planned = self._plan(index, data)
        if self._pending.omits_payload and not pipeline.verifies:
            return told, planned
        image = pipeline.cache.get(key) if pipeline.cache.keeps else None
        if image is None:
            decoded = decode_rgb(data, options=self._options, limits=pipeline.limits)
            image = self._processor.process(decoded.rgb, decoded.width, decoded.height)
        pipeline.cache.put(key, image, name)
        return told, image

    def _data(self, index: int) -> bytes:
        data = self._pending.data(index)
        assert data is not None, "only data URLs come without a fetch"
        return data

    def _plan(self, index: int, data: bytes) -> tuple[str, str, Image]:
        """An image's content hash, the hash that is told, and what its header says.

        The content's is empty where only the told one, of a name, is needed.
        """
        pipeline = self._pipeline
        header = read_header(
            data, options=self._options, limits=pipeline.limits, budget=self._budget
        )
        planned = self._checked(header)
        name = self._name(index)
        if name is not None and self._pending.omits_payload and not pipeline.verifies:
            return "", name, planned
        key = pipeline.hash_image(data, header.io_config, self._io, self._mm)
        return key, name or key, planned

    def _name(self, index: int) -> str | None:
        uuid = self._media[index].uuid
        return None if uuid is None else self._pipeline.hash_name(uuid, self._io, self._mm)

    def _checked(self, header: Header) -> Image:
        """What is known before any pixel is; refuses what no prompt could hold."""
        planned = self._processor.plan(header.width, header.height)
        most = self._pipeline.limits.image_pixels
        width, height = planned.size
        if 0 < most < width * height:
            raise _refused(
                f"the image would be enlarged to {width}x{height} pixels; {most} are the most"
            )
        length = self._pipeline.max_model_len
        if planned.tokens > length:
            raise request_error(
                f"an image comes to {planned.tokens} tokens; the model's context holds {length}",
                "BadRequestError",
                "input_tokens",
                400,
            )
        return planned

    def _settle(self, index: int, result: tuple[str, Image] | BaseException) -> None:
        with self._lock:
            self._ready[index] = result
            self._left -= 1
            if self._left:
                return
        if not self.answer.set_running_or_notify_cancel():
            return
        try:
            # The first failure in the request's order, whichever came first.
            ready = []
            for item in self._ready:
                if isinstance(item, BaseException):
                    raise item
                assert item is not None, "all have settled"
                ready.append(item)
            self.answer.set_result(self._pending.finish(ready))
        except BaseException as error:
            self.answer.set_exception(error)


def _refused(message: str) -> RequestError:
    return request_error(message, "BadRequestError", None, 400)


def _be_nice() -> None:
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
