"""The Rust half: request bytes to response bytes, and the pieces that make sense alone."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, final

__all__ = [
    "ChatTemplate",
    "DerenderStream",
    "Image",
    "ImageProcessor",
    "MediaHasher",
    "MediaReference",
    "Pending",
    "Renderer",
    "RequestError",
    "SetupError",
    "TemplateError",
    "Tokenizer",
    "__version__",
    "choose_parsers",
    "decode_item",
    "error_envelope",
    "parse_case",
    "parse_text",
    "parser_names",
    "read_plain_request",
    "request_error",
    "tool_format_names",
]

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

def read_plain_request(data: bytes) -> tuple[str, bytes | None, str | None, bytes] | None:
    """Read `data` as one whole, plain POST of JSON: target, authorization, request id and body.

    `None` for whatever else it may be, which is for the HTTP server's own parser.
    """

def error_envelope(message: str, type: str, param: str | None, code: int) -> bytes:
    """The OpenAI error envelope: `{"error":{"message","type","param","code"}}`."""

def request_error(message: str, type: str, param: str | None, code: int) -> RequestError:
    """A `RequestError` to raise, with all its attributes."""

@final
class MediaReference:
    """A medium that a request refers to.

    `modality` is `image`, `audio` or `video`; `kind` the content part's (`image_url`, …). An empty
    one has no data, and names only a `uuid`.
    """

    @property
    def modality(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def uuid(self) -> str | None: ...
    @property
    def is_empty(self) -> bool: ...

@final
class Pending:
    """A request that waits for its `media`, listed in request order."""

    @property
    def media(self) -> list[MediaReference]: ...
    @property
    def media_io_kwargs(self) -> str | None:
        """The request's, as JSON, if there are any."""

    @property
    def mm_processor_kwargs(self) -> str | None:
        """The request's, as JSON, if there are any."""

    @property
    def omits_payload(self) -> bool:
        """Whether the answer is to hold hashes and places alone."""

    @property
    def prompt_length(self) -> int:
        """Token ids of the prompt before media take their places."""

    def is_data(self, index: int) -> bool:
        """Whether the medium `index` came as a `data:` URL."""

    def data(self, index: int) -> bytes | None:
        """The bytes of the medium `index`, if it came as a `data:` URL.

        A 400 for a URL that is malformed.
        """

    def url(self, index: int) -> str:
        """The URL of the medium `index`."""

    def finish(self, ready: Sequence[tuple[str, Image]]) -> bytes | memoryview:
        """The response, a memoryview if it is long.

        `ready` has a hash and an image for each of `media`.
        """

@final
class Image:
    """An image that was processed, or, without its pixels, planned. Shared, never copied."""

    @property
    def tokens(self) -> int:
        """Placeholder tokens."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels after resizing."""

    @property
    def nbytes(self) -> int:
        """Bytes that this holds."""

@final
class ImageProcessor:
    """Turns RGB pixels into what a model takes, bit for bit as transformers does."""

    def __new__(cls, spec_json: bytes) -> ImageProcessor:
        """`spec_json` is an `ImageProcessorSpec` of rust/core/src/image."""

    def plan(self, width: int, height: int) -> Image:
        """What becomes of an image of this size; nothing is processed.

        A 400 for a size that the model cannot take.
        """

    def process(self, rgb: bytes, width: int, height: int) -> Image:
        """Process `height` rows of `width` pixels of 3 bytes."""

@final
class MediaHasher:
    """Names media by their content, as vLLM's `MultiModalHasher` does."""

    def __new__(cls, algorithm: str, model_id: str) -> MediaHasher:
        """`algorithm` is `blake3`, `sha256` or `sha512`; `model_id` the literal model name."""

    def image(
        self,
        data: bytes,
        io_config: tuple[str, Sequence[int]] | None = None,
        media_io_kwargs: str | None = None,
        mm_processor_kwargs: str | None = None,
    ) -> str:
        """The hash of an encoded image.

        `io_config` is the mode and the background that changed it, the two `kwargs` are JSON.
        """

    def uuid(
        self,
        modality: str,
        uuid: str,
        media_io_kwargs: str | None = None,
        mm_processor_kwargs: str | None = None,
    ) -> str:
        """The hash of a medium that the client named: the name, unless options bear on it."""

@final
class Renderer:
    """Renders requests for one model. Immutable; any number of threads may call it at once."""

    def __new__(cls, spec_json: bytes, tokenizer_json: bytes) -> Renderer:
        """`spec_json` is `{"model": …, "settings": …}`; a `SetupError` says what is wrong."""

    def begin(self, route: str, body: bytes, request_id: str | None = None) -> bytes | Pending:
        """Serve one body of `chat`, `completions`, `tokenize` or `detokenize`.

        The response bytes, or what they wait for; `RequestError` for a request that has no answer.
        """

    def begin_short(
        self, route: str, body: bytes, request_id: str | None = None
    ) -> bytes | Pending | None:
        """As `begin`, or `None`, at once, for more than half a millisecond of work."""

    def finish_loading(self) -> bool:
        """Wait until what is loaded in the background is there.

        A server answers before that; whether the fastest encoder is among it.
        """

    def stats(self) -> dict[str, int]:
        """Counters of the tokenizer's segment cache."""

    @property
    def backend(self) -> str:
        """Which tokenizer implementation encodes."""

@final
class DerenderStream:
    """One streamed answer: an engine's chunks in, a client's chunks out, in order."""

    def __new__(cls, renderer: Renderer, route: str, body: bytes) -> DerenderStream:
        """`body` is a streamed derender request of `route` without its chunk and state.

        Routes are `chat_derender` and `completions_derender`.
        """

    @property
    def includes_usage(self) -> bool:
        """Whether the request asks for the chunk that tells the usage."""

    @property
    def tells(self) -> bool:
        """Whether the last chunk tells a client anything; text may be held back."""

    def stopped(self) -> list[int]:
        """The choices that have met a stop string and not ended.

        An engine that knows no strings goes on with them; `push` ends them with `stop`.
        """

    def push_chunk(self, chunk: bytes) -> bytes:
        """The client's chunk for one of the engine's, both JSON."""

    def push(
        self, token_ids: Sequence[int], *, finish_reason: str | None = None, index: int = 0
    ) -> bytes:
        """The client's chunk for these tokens of a choice, as JSON."""

    def finish(self, finish_reason: str = "stop") -> bytes | None:
        """The client's chunk for the end of all choices that have not ended."""

    def usage_chunk(self) -> bytes:
        """The chunk that tells how many tokens there were, as JSON."""

class TemplateError(ValueError):
    """A chat template that cannot be compiled, or that failed while rendering."""

@final
class ChatTemplate:
    """A chat template, compiled once; renders as transformers does with Jinja2."""

    def __new__(
        cls, source: str, special_tokens: Mapping[str, str] | None = None
    ) -> ChatTemplate: ...
    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        now: datetime.datetime | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The text of a conversation; `TemplateError` where transformers raises.

        Further keywords become variables. `now` is what `strftime_now` tells.
        """

    @property
    def content_format(self) -> str:
        """How the template wants message content: `openai` (a list of parts) or `string`."""

    @property
    def undeclared_variables(self) -> list[str]:
        """The variables that the template takes from outside, in alphabetical order."""

@final
class Tokenizer:
    """A tokenizer. Immutable but for its caches; any number of threads may use it at once."""

    def __new__(cls, tokenizer_json: bytes, spec_json: bytes | None = None) -> Tokenizer:
        """`spec_json` is the `tokenizer` of a render spec; a `SetupError` says what is wrong."""

    @property
    def backend(self) -> str:
        """Which implementation encodes, and why."""

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        truncation_side: str = "right",
    ) -> bytes:
        """Ids as little-endian 32-bit integers."""

    def encode_with_offsets(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        max_length: int | None = None,
        truncation_side: str = "right",
    ) -> tuple[bytes, bytes]:
        """Ids, and start and end of each in characters of the text, all as `encode` gives ids."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids; ids outside the vocabulary give nothing."""

    def id_to_token(self, id: int) -> str | None: ...
    def token_to_id(self, token: str) -> int | None: ...
    @property
    def max_token_id(self) -> int: ...
    @property
    def longest_token_chars(self) -> int:
        """Characters of the longest piece of the vocabulary."""

    def cache_stats(self) -> tuple[int, int, int, int]:
        """Hits, misses, bytes and entries of the cache of segments."""

def parse_case(
    case: str,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    tool_formats: Sequence[str] | None = None,
) -> str:
    """Answer a case: a JSON object with `text` and what it is read with; the answer is JSON too."""

def parse_text(
    text: str,
    *,
    tool_parser: str | None = None,
    reasoning_parser: str | None = None,
    tool_formats: Sequence[str] | None = None,
) -> str:
    """Read a whole text; the message is JSON."""

def parser_names() -> tuple[list[str], list[str]]:
    """The names of the built-in tool formats and of the reasoning formats."""

def tool_format_names(toml: str) -> list[str]:
    """The names of the formats in a TOML text; a `SetupError` says what is wrong with it."""

def choose_parsers(architectures: Sequence[str], template: str) -> tuple[str | None, str | None]:
    """What `auto` stands for: the tool format and the reasoning format, where they are known."""

def decode_item(text: str) -> dict[str, Any]:
    """Read one string of `kwargs_data` or `mm_metadata`.

    A dict from names to numbers, None, lists of those, and tensors, which are
    `(dtype, shape, bytes)`; a `RequestError` for whatever is none.
    """
