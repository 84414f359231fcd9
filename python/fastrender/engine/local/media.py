"""What is done with the media of requests: embedded here, published, or fetched from elsewhere."""

import asyncio
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from fastrender._native import decode_item
from fastrender.config import RenderConfig
from fastrender.engine.interface import EngineError
from fastrender.engine.local import store, transfer
from fastrender.engine.local.loop import BatchThread
from fastrender.engine.local.params import refused
from fastrender.engine.local.request import GenerateRequest, Item
from fastrender.engine.local.sequence import Span
from fastrender.engine.local.store import ConflictError, EmbeddingStore, StoreFullError
from fastrender.engine.local.transfer import Expected, Fetcher
from fastrender.engine.local.vision import Embedding, Picture, Tower

_GIB = 1 << 30
_RETRY = ((b"retry-after", b"1"),)


class Media:
    """Images of requests. For one event loop."""

    def __init__(
        self, config: RenderConfig, tower: Tower | None, thread: BatchThread, expected: Expected
    ) -> None:
        """Embed with `tower`, which `thread` runs; without one, images are refused."""
        self._tower = tower
        self._thread = thread
        publishes = tower is not None and config.role != "prefill-decode"
        most = int(config.embedding_cache_gb * _GIB)
        self.store = EmbeddingStore(most, config.ec_ttl) if publishes else None
        self._fetcher = Fetcher(config, expected) if tower is not None else None
        listens = config.host not in (None, "", "0.0.0.0", "::")
        named = config.ec_host or (config.host if listens else None)
        self.host = named or transfer.outward_address()
        self.port = config.port

    async def close(self) -> None:
        """Forget what was published."""
        if self.store is not None:
            self.store.close()
        if self._fetcher is not None:
            await self._fetcher.close()

    async def spans(self, request: GenerateRequest) -> list[Span]:
        """Where the request's images stand, with their embeddings."""
        tower = self._checked(request)
        pictures = await self._pictures(request.items)
        embedding_of = await self._embeddings(list(pictures.values()))
        lacking = [item for item in request.items if item.kwargs is None]
        fetched = await self._fetch(lacking, request.ec_transfer_params) if lacking else {}
        spans = []
        for item in request.items:
            if item.kwargs is not None:
                picture = pictures[item]
                grid, embedding = picture.grid, embedding_of[picture.key]
            else:
                grid, embedding = fetched[item]
            sides = grid[1] // tower.merge_size, grid[2] // tower.merge_size
            spans.append(Span(item.offset, item.length, embedding, sides))
        return spans

    async def publish(self, request: GenerateRequest) -> dict[str, Any] | None:
        """Embed the request's images, and say where the embeddings are to be had."""
        self._checked(request)
        if not request.items:
            return None
        if self.store is None:
            raise refused("this worker publishes no embeddings", "features")
        if any(item.kwargs is None for item in request.items):
            raise refused("an encode worker needs `kwargs_data`", "features")
        pictures = await self._pictures(request.items)
        entries: dict[str, store.Published] = {}
        unknown: dict[str, Picture] = {}
        for picture in pictures.values():
            if picture.key in entries or picture.key in unknown:
                continue
            entry = self.store.announced(picture.mm_hash, picture.key)
            if entry is None:
                unknown[picture.key] = picture
            else:
                entries[picture.key] = entry
        embeddings = await self._embeddings(list(unknown.values()))
        for key, picture in unknown.items():
            put = functools.partial(self.store.publish, picture.mm_hash, key, embeddings[key])
            try:
                entries[key] = await asyncio.to_thread(put)
            except StoreFullError:
                text = "as many embeddings wait to be fetched as the store holds"
                raise EngineError(503, text, headers=_RETRY) from None
            except ConflictError:
                text = f"another image of the hash `{picture.mm_hash[:80]}` waits to be fetched"
                raise EngineError(409, text, headers=_RETRY) from None
        items = [
            store.describe(entries[key], self.host, self.port, "image")
            for key in dict.fromkeys(picture.key for picture in pictures.values())
        ]
        return {"ec_items": items}

    def _checked(self, request: GenerateRequest) -> Tower:
        for item in request.items:
            if item.modality != "image":
                raise refused(f"the torch engine takes no {item.modality[:40]}", item.modality[:40])
        if self._tower is None and request.items:
            raise refused("the torch engine takes no images for this model", "image")
        tower: Any = self._tower
        return tower  # type: ignore[no-any-return]

    async def _pictures(self, items: Sequence[Item]) -> dict[Item, Picture]:
        """The images that came with the request, decoded."""
        tower = self._tower
        assert tower is not None

        def decode() -> dict[Item, Picture]:
            return {
                item: tower.read(item.mm_hash, decode_item(item.kwargs), item.length)
                for item in items
                if item.kwargs is not None
            }

        return await asyncio.to_thread(decode)

    async def _embeddings(self, pictures: list[Picture]) -> dict[str, Embedding]:
        """Embeddings by key, from the thread that runs the tower."""
        if not pictures:
            return {}
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[str, Embedding]] = loop.create_future()

        def settle(result: dict[str, Embedding] | BaseException) -> None:
            if answer.done():
                return
            if isinstance(result, BaseException):
                text = "the vision tower failed; the server's log says why"
                answer.set_exception(EngineError(500, text))
            else:
                answer.set_result(result)

        def done(result: dict[str, Embedding] | BaseException) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        self._thread.embed(pictures, done)
        return await answer

    async def _fetch(
        self, items: Sequence[Item], params: Mapping[str, Any]
    ) -> dict[Item, tuple[tuple[int, int, int], Embedding]]:
        """Embeddings of items that came as metadata alone, with their grids."""
        tower, fetcher = self._tower, self._fetcher
        assert tower is not None
        assert fetcher is not None
        known = transfer.sources(params)

        async def fetch(item: Item) -> tuple[tuple[int, int, int], Embedding]:
            assert item.metadata is not None
            grid = tower.read_grid(decode_item(item.metadata), item.length)
            source = known.get(item.mm_hash)
            if source is None:
                raise transfer.missing(item.mm_hash)
            embedding = tower.known(source.key)
            if embedding is None:
                embedding = await fetcher.fetch(source, item.length)
                tower.keep(source.key, embedding)
            return grid, embedding

        fetches = [asyncio.create_task(fetch(item)) for item in items]
        try:
            return dict(zip(items, await asyncio.gather(*fetches), strict=True))
        finally:
            for task in fetches:
                task.cancel()
