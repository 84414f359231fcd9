"""`EmbeddingStore`: what an encode worker has published, ready to be sent.

Embeddings are kept as the safetensors files that travel. Where there is shared memory they lie in
it, so that a prefill worker on the same host maps what another one downloads.
"""

import collections
import contextlib
import dataclasses
import fcntl
import hashlib
import json
import mmap
import os
import pathlib
import secrets
import shutil
import threading
import time
from collections.abc import Mapping

import safetensors.torch
import torch

from fastrender.engine.local.vision import Embedding

SHARED_FOLDER = pathlib.Path("/dev/shm")
_PREFIX = "fastrender-ec-"
_LOCK = "lock"
_KINDS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class StoreFullError(Exception):
    """Everything that is kept is still waited for."""


class ConflictError(Exception):
    """Another embedding of the same hash is still waited for."""


@dataclasses.dataclass(slots=True)
class Published:
    """One embedding as it travels."""

    mm_hash: str
    # Of the image that it was made from.
    key: str
    body: bytes | mmap.mmap
    size: int
    sha256: str
    dtype: str
    shape: tuple[int, int]
    layers: int
    # Below `SHARED_FOLDER`; None where there is none.
    shared_name: str | None
    expires: float
    # Prefill workers that were told of it and have not fetched it.
    announced: int = 0


class EmbeddingStore:
    """Published embeddings, bounded in bytes; any thread may use it."""

    def __init__(self, most_bytes: int, ttl: float) -> None:
        """Keep at most `most_bytes`, each for `ttl` seconds after its last use."""
        self._most_bytes = most_bytes
        self._ttl = ttl
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[str, Published] = collections.OrderedDict()
        self._bytes = 0
        self._folder: _SharedFolder | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def __len__(self) -> int:
        """How many embeddings are kept."""
        return len(self._kept)

    def announced(self, mm_hash: str, key: str) -> Published | None:
        """The embedding of that image, which is now waited for; None if it is not kept."""
        with self._lock:
            self._sweep()
            entry = self._kept.get(mm_hash)
            if entry is None or entry.key != key:
                return None
            return self._announce(entry)

    def publish(self, mm_hash: str, key: str, embedding: Embedding) -> Published:
        """Keep an embedding, and announce it.

        `ConflictError` or `StoreFullError` if that cannot be now.
        """
        tensors = {"embeddings": embedding.tokens.cpu().contiguous()}
        for layer, tensor in enumerate(embedding.deepstack):
            tensors[f"deepstack.{layer}"] = tensor.cpu().contiguous()
        body = safetensors.torch.save(tensors, {"mm_hash": mm_hash})
        rows, columns = embedding.tokens.shape
        entry = Published(
            mm_hash=mm_hash,
            key=key,
            body=body,
            size=len(body),
            sha256=hashlib.sha256(body).hexdigest(),
            dtype=str(embedding.tokens.dtype).removeprefix("torch."),
            shape=(rows, columns),
            layers=len(embedding.deepstack),
            shared_name=None,
            expires=0,
        )
        with self._lock:
            self._sweep()
            old = self._kept.get(mm_hash)
            if old is not None and old.key == key:
                return self._announce(old)
            if old is not None and old.announced:
                raise ConflictError(mm_hash)
            if old is not None:
                self._drop(old)
            self._make_room(entry.size)
            self._share(entry, body)
            self._kept[mm_hash] = entry
            self._bytes += entry.size
            return self._announce(entry)

    def fetch(self, mm_hash: str) -> Published | None:
        """What somebody comes for."""
        with self._lock:
            self._sweep()
            entry = self._kept.get(mm_hash)
            if entry is not None:
                entry.announced = max(0, entry.announced - 1)
                entry.expires = time.monotonic() + self._ttl
                self._kept.move_to_end(mm_hash)
            return entry

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            for entry in list(self._kept.values()):
                self._drop(entry)
            if self._folder is not None:
                self._folder.close()
                self._folder = None

    def _announce(self, entry: Published) -> Published:
        entry.announced += 1
        entry.expires = time.monotonic() + self._ttl
        self._kept.move_to_end(entry.mm_hash)
        return entry

    def _sweep(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._kept.values() if entry.expires <= now]:
            self._drop(entry)

    def _make_room(self, size: int) -> None:
        if size > self._most_bytes:
            raise StoreFullError
        free = [entry for entry in self._kept.values() if not entry.announced]
        while self._bytes + size > self._most_bytes:
            if not free:
                raise StoreFullError
            self._drop(free.pop(0))

    def _drop(self, entry: Published) -> None:
        del self._kept[entry.mm_hash]
        self._bytes -= entry.size
        if entry.shared_name is not None:
            # Whoever has mapped it keeps it.
            with contextlib.suppress(OSError):
                (SHARED_FOLDER / entry.shared_name).unlink()

    def _share(self, entry: Published, body: bytes) -> None:
        if self._folder is None:
            try:
                self._folder = _SharedFolder()
            except OSError:
                return
        path = self._folder.path / secrets.token_hex(16)
        try:
            path.write_bytes(body)
            with path.open("rb") as file:
                entry.body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError:
            # Full: then it stays in this process.
            path.unlink(missing_ok=True)
            return
        entry.shared_name = f"{self._folder.path.name}/{path.name}"


def describe(entry: Published, host: str, port: int, modality: str) -> Mapping[str, object]:
    """An item of `ec_transfer_params.ec_items`."""
    return {
        "mm_hash": entry.mm_hash,
        "peer_host": host,
        "peer_port": port,
        "size_bytes": entry.size,
        "modality": modality,
        "dtype": entry.dtype,
        "shape": list(entry.shape),
        "layers": entry.layers,
        "sha256": entry.sha256,
        "shared_name": entry.shared_name,
    }


def read(body: bytes | mmap.mmap, mm_hash: str) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file, which are views of `body`; `ValueError` if it is none."""
    try:
        length = int.from_bytes(body[:8], "little")
        if length > len(body) - 8:
            raise ValueError("its header is longer than the file")
        header = json.loads(body[8 : 8 + length])
        if header.pop("__metadata__", {}).get("mm_hash") != mm_hash:
            raise ValueError("it is of another image")
        tensors = {}
        data = memoryview(body)[8 + length :]
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            kind = _KINDS[entry["dtype"]]
            shape = [int(side) for side in entry["shape"]]
            if not 0 <= start <= end <= len(data):
                raise ValueError("a tensor lies outside of the file")
            tensors[name] = torch.frombuffer(data[start:end], dtype=kind).reshape(shape)
        return tensors
    except (KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"it is malformed ({type(error).__name__})") from error


class _SharedFolder:
    """A folder in shared memory, locked as long as this process lives."""

    def __init__(self) -> None:
        """`OSError` where there is no shared memory."""
        _sweep_shared()
        self.path = SHARED_FOLDER / f"{_PREFIX}{secrets.token_hex(8)}"
        self.path.mkdir(mode=0o700)
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove it; whoever has mapped a file keeps that."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep_shared() -> None:
    """Remove what processes that were killed have left."""
    for folder in SHARED_FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            # Another user's cannot be opened; a living process has its own locked.
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def open_shared(name: str, size: int) -> mmap.mmap | None:
    """Map what another process of this user has published; None if it is not there."""
    folder, _, file = name.partition("/")
    plain = (folder.removeprefix(_PREFIX) + file).isalnum()
    if not folder.startswith(_PREFIX) or not file or not plain:
        return None
    try:
        descriptor = os.open(SHARED_FOLDER / folder / file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or status.st_size != size:
            return None
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)
