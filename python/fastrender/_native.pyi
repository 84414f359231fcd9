"""The Rust half: request bytes to response bytes, and the pieces that make sense alone."""

from typing import final

__version__: str

class RequestError(Exception):
    """A request that cannot be served.

    `body` is the ready OpenAI envelope with `message`, `type`, `param` and, as `code`, `status`.
    """

    status: int
    type: str
    param: str | None
    message: str
    body: bytes

class SetupError(ValueError):
    """A model folder or a setting that no renderer can be built from."""

def error_envelope(message: str, type: str, param: str | None, code: int) -> bytes:
    """The OpenAI error envelope: `{"error":{"message","type","param","code"}}`."""

def request_error(message: str, type: str, param: str | None, code: int) -> RequestError:
    """A `RequestError` to raise, with all its attributes."""

@final
class MediaReference:
    """A medium that a request refers to.

    `modality` is `image`, `audio` or `video`; `kind` the content part's (`image_url`, …); `source`
    a URL or base64 data, `None` for a part that names only a `uuid`.
    """

    @property
    def modality(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def source(self) -> str | None: ...
    @property
    def uuid(self) -> str | None: ...

@final
class Pending:
    """A request that waits for its `media`, listed in request order."""

    @property
    def media(self) -> list[MediaReference]: ...

@final
class Renderer:
    """Renders requests for one model. Immutable; any number of threads may call it at once."""

    def __new__(cls, spec_json: bytes, tokenizer_json: bytes) -> Renderer:
        """`spec_json` is `{"model": …, "settings": …}`; `SetupError` when nothing can be built of it."""

    def begin(self, route: str, body: bytes, request_id: str | None = None) -> bytes | Pending:
        """Serve one body of `chat`, `completions`, `tokenize` or `detokenize`.

        The response bytes, or what they wait for; `RequestError` for a request that has no answer.
        """

    def stats(self) -> dict[str, int]:
        """Counters of the tokenizer's segment cache."""

    @property
    def backend(self) -> str:
        """Which tokenizer implementation encodes."""
