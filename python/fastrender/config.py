"""`RenderConfig`: the only place where a setting is declared.

The command line, the keys of `--config` files, the environment's fallbacks and the settings of the
native renderer are all made from its fields; reading them is the business of `settings` and
`arguments`.
"""

import dataclasses
import datetime
import os
import pathlib
import urllib.parse
from collections.abc import Collection, Mapping
from typing import Any

from fastrender.parser_names import REASONING_PARSERS, TOOL_PARSERS
from fastrender.settings import (
    ConfigError,
    Shape,
    dashed,
    declared,
    from_environment,
    parse_count,
    parse_count_or_auto,
    parse_seconds,
    setting,
    shown,
)

EMBEDDED_MODEL = "fastrender/tiny"
# A parser of this name is found by the model.
AUTO = "auto"
REASONING_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
LOG_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RenderConfig:
    """Every setting of a renderer and its server; a value that cannot be raises `ConfigError`."""

    # The model folder.
    model: str = setting(
        EMBEDDED_MODEL,
        "Model folder or hub id; without one, the small model inside the package.",
    )
    tokenizer: str | None = setting(None, "Folder or hub id of the tokenizer, if not the model's.")
    tokenizer_mode: str = setting("auto", "How the tokenizer is loaded; `auto` and `hf` work.")
    tokenizer_revision: str | None = setting(None, "Hub revision of the tokenizer.")
    revision: str | None = setting(None, "Hub revision of the model.")
    hf_token: str | None = setting(
        None, "Token for the hub; HF_TOKEN is honoured too.", may_be_empty=True
    )
    download_dir: str | None = setting(None, "Where hub files are kept.")
    served_model_name: tuple[str, ...] = setting(
        (),
        "Names that requests may use; the first one is the default.",
        shape=Shape.LIST,
    )
    max_model_len: int | None = setting(
        None,
        "Tokens of prompt and output together; 32k and 32K are understood.",
        parse=parse_count_or_auto,
        least=1,
    )
    generation_config: str = setting(
        "auto", "Sampling defaults: `auto` (model folder), `vllm` (none), or a folder."
    )
    override_generation_config: dict[str, Any] = setting(
        {}, "Sampling defaults that go over the model's.", shape=Shape.JSON
    )
    hf_overrides: dict[str, Any] = setting({}, "Values over config.json's.", shape=Shape.JSON)

    # Rendering; `native` ones reach the native renderer under their own names.
    chat_template: str | None = setting(
        None, "File, literal template, or name of one of the tokenizer's own templates."
    )
    chat_template_content_format: str = setting(
        "auto",
        "How message content reaches the template.",
        choices=("auto", "string", "openai"),
        native=True,
    )
    trust_request_chat_template: bool = setting(
        False, "Render templates that a request carries.", native=True
    )
    trust_request_mm_kwargs: bool = setting(
        False, "Accept media processing options that a request carries.", native=True
    )
    default_chat_template_kwargs: dict[str, Any] = setting(
        {},
        "Template variables below those of the request.",
        shape=Shape.JSON,
        native=True,
    )
    cohere_format: str = setting(
        "cmd4",
        "Value of the template variable of this name.",
        native=True,
        may_be_empty=True,
    )
    strftime_now: str | None = setting(
        None,
        "Local time that `strftime_now` tells templates, as in 2026-12-01T12:00:00, instead of the "
        "clock's: the same request then gives the same ids on any day.",
        native=True,
    )
    reasoning_effort_map: dict[str, Any] = setting(
        {}, "Efforts to replace before templating.", shape=Shape.JSON, native=True
    )
    enable_auto_tool_choice: bool = setting(
        False, "Let the model choose tools; needs --tool-call-parser.", native=True
    )
    tool_call_parser: str | None = setting(
        None,
        "Format in which the model writes tool calls; `auto` finds it by the model.",
        native=True,
    )
    tool_parser_file: tuple[str, ...] = setting(
        (), "TOML file with a tool format of one's own.", shape=Shape.REPEATED
    )
    tool_strict_level: str | None = setting(
        None,
        "How far engines are told to hold tool calls to their form, whatever a request says.",
        choices=("auto", "function", "parameter"),
        native=True,
    )
    tool_value_bytes: int = setting(
        64 << 10,
        "Bytes of a tool's argument that is held back until it is complete.",
        parse=parse_count,
        least=1,
        most=1 << 30,
        native=True,
    )
    reasoning_parser: str | None = setting(
        None,
        "Format in which the model writes reasoning; `auto` finds it by the model.",
        choices=(*REASONING_PARSERS, AUTO),
        native=True,
    )
    exclude_tools_when_tool_choice_none: bool = setting(
        False, "Keep tools from the template when tool_choice is none.", native=True
    )
    interleave_mm_strings: bool = setting(
        False,
        "Leave media placeholders where they stand in string content.",
        native=True,
    )
    escape_special_tokens: bool = setting(
        False,
        "Keep what clients write in messages, tools and documents from becoming control tokens.",
        native=True,
    )
    limit_mm_per_prompt: dict[str, Any] = setting(
        {},
        "Media items that one request may carry, by modality.",
        shape=Shape.JSON,
        native=True,
    )
    skip_model_name_validation: bool = setting(
        False,
        "Accept any model name in requests.",
        environment=("VLLM_SKIP_MODEL_NAME_VALIDATION",),
        native=True,
    )
    omit_null: bool = setting(False, "Leave null fields out of answers.", native=True)
    max_n_sequences: int = setting(
        16_384,
        "Largest `n` of a request.",
        parse=parse_count,
        least=1,
        environment=("VLLM_MAX_N_SEQUENCES",),
        native=True,
    )
    max_completion_prompts: int = setting(
        1_024,
        "Prompts that one completion request may carry.",
        parse=parse_count,
        least=1,
        environment=("VLLM_MAX_COMPLETION_PROMPTS",),
        native=True,
    )
    max_stop_strings: int = setting(
        4,
        "Stop strings that one request may carry.",
        parse=parse_count,
        least=0,
        environment=("VLLM_MAX_STOP_STRINGS",),
        native=True,
    )
    max_logprobs: int = setting(
        20,
        "Alternatives of a token that logprobs may have; -1 for no bound.",
        parse=parse_count,
        least=-1,
        native=True,
    )
    logprob_bytes: str = setting(
        "raw",
        "What `bytes` of a logprob are: the token's own (raw), or those of its text, as vLLM's.",
        choices=("raw", "text"),
        native=True,
    )
    derender_state: str = setting(
        "compat",
        "What a stream's client carries: all output, which vLLM can go on with (compat), the parse "
        "alone (compact), or the output alone, with parses kept here (cache).",
        choices=("compat", "compact", "cache"),
        native=True,
    )
    template_fuel: int = setting(
        50_000_000,
        "Steps that a template may take; 0 for no bound.",
        parse=parse_count,
        least=0,
        native=True,
    )
    template_output_bytes: int = setting(
        64 << 20,
        "Bytes that a template may print.",
        parse=parse_count,
        least=1,
        native=True,
    )
    tokenizer_cache_mb: int = setting(
        64,
        "Megabytes for tokens of text seen before; 0 for none.",
        parse=parse_count,
        least=0,
        most=1 << 20,
    )

    # Media.
    dtype: str = setting(
        "auto",
        "Number type of the model, and of pixels that are normalised here.",
        choices=("auto", "half", "float16", "bfloat16", "float", "float32"),
    )
    mm_device_do_normalize: bool | None = setting(
        None,
        "Send pixels as bytes, for the vision worker to normalise; by default where it can.",
        shape=Shape.SWITCH,
        kind=bool,
    )
    mm_processor_kwargs: dict[str, Any] = setting(
        {}, "Media processing options, such as max_pixels.", shape=Shape.JSON
    )
    media_io_kwargs: dict[str, Any] = setting(
        {}, "Options of decoding, by modality.", shape=Shape.JSON
    )
    mm_hasher_algorithm: str = setting(
        "blake3",
        "How media are hashed.",
        choices=("blake3", "sha256", "sha512"),
        environment=("VLLM_MM_HASHER_ALGORITHM",),
    )
    mm_processor_cache_gb: float = setting(
        4.0,
        "Gibibytes for processed media; 0 for none.",
        parse=parse_seconds,
        least=0,
        most=1 << 20,
    )
    verify_media: bool = setting(
        False, "Decode media even where a request asks for hashes and places alone."
    )
    media_fetch_threads: int = setting(
        64, "Media that may be fetched at once.", parse=parse_count, least=1, most=1024
    )
    allow_private_media: bool = setting(
        False, "Fetch media from addresses that are not on the public internet, too."
    )
    allowed_media_domains: tuple[str, ...] = setting(
        (), "Hosts that media may be fetched from; any if none is given.", shape=Shape.LIST
    )
    allowed_local_media_path: str | None = setting(
        None, "Folder whose files may be named by file: URLs."
    )
    media_use_proxies: bool = setting(
        False,
        "Fetch media through the environment's proxies; it is for them then to guard the network.",
    )
    media_url_allow_redirects: bool = setting(
        True,
        "Follow redirects when media are fetched.",
        environment=("VLLM_MEDIA_URL_ALLOW_REDIRECTS",),
    )
    media_fetch_max_retries: int = setting(
        3,
        "Attempts at a URL.",
        parse=parse_count,
        environment=("VLLM_MEDIA_FETCH_MAX_RETRIES",),
    )
    media_fetch_time_limit: float = setting(
        60.0,
        "Seconds that all attempts at a URL may take together.",
        parse=parse_seconds,
        least=0,
    )
    image_fetch_timeout: float = setting(
        5.0,
        "Seconds of the first attempt at an image; each further one gets four times as many.",
        parse=parse_seconds,
        environment=("VLLM_IMAGE_FETCH_TIMEOUT",),
    )
    audio_fetch_timeout: float = setting(
        10.0,
        "The same for audio.",
        parse=parse_seconds,
        environment=("VLLM_AUDIO_FETCH_TIMEOUT",),
    )
    video_fetch_timeout: float = setting(
        30.0,
        "The same for a video.",
        parse=parse_seconds,
        environment=("VLLM_VIDEO_FETCH_TIMEOUT",),
    )
    max_media_download_size_mb: int = setting(
        256,
        "Mebibytes of one download or file; 0 for no bound.",
        parse=parse_count,
        environment=("VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB",),
    )
    max_media_request_download_size_mb: int = setting(
        256,
        "Mebibytes that one request's downloads may have together; 0 for no bound.",
        parse=parse_count,
        environment=("VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB",),
    )
    max_image_pixels: int = setting(
        178_956_970,
        "Pixels of one image; 0 for no bound but Pillow's own.",
        parse=parse_count,
        environment=("VLLM_MAX_IMAGE_PIXELS",),
    )
    max_media_request_decode_bytes: int = setting(
        715_827_880,
        "Bytes of one request's decoded media, four for each pixel; 0 for no bound.",
        parse=parse_count,
        environment=("VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES",),
    )

    # The server.
    host: str | None = setting(
        None, "Address to listen on; all of them if none is given.", may_be_empty=True
    )
    port: int = setting(
        8000,
        "Port to listen on; 0 for any free one.",
        parse=parse_count,
        least=0,
        most=65_535,
    )
    uds: str | None = setting(None, "Unix socket to listen on, instead of host and port.")
    workers: int = setting(
        1, "Processes that share the socket.", parse=parse_count, least=1, most=1_024
    )
    renderer_num_workers: int = setting(
        os.cpu_count() or 1,
        "Threads for large requests, in each process.",
        parse=parse_count,
        least=1,
        most=1_024,
    )
    request_queue_limit: int = setting(
        1_024,
        "Requests that may wait for a thread before new ones get 503.",
        parse=parse_count,
        least=0,
    )
    max_request_bytes: int = setting(
        64 << 20,
        "Largest request body; larger ones get 413.",
        parse=parse_count,
        least=1,
        environment=("VLLM_HTTP_MAX_REQUEST_BODY_SIZE",),
        native=True,
    )
    max_buffered_bytes: int = setting(
        1 << 30,
        "Bytes of request bodies held at once, in each process; beyond it requests get 503.",
        parse=parse_count,
        least=1,
    )
    request_timeout: float = setting(
        60.0,
        "Seconds in which a request's body must arrive.",
        parse=parse_seconds,
        least=0,
    )
    max_streams: int = setting(
        1_024,
        "Derender streams that may be open at once, in each process; beyond it new ones get 503.",
        parse=parse_count,
        least=0,
    )
    stream_timeout: float = setting(
        300.0,
        "Seconds that an engine's chunks may stay away in a derender stream; 0 for no bound.",
        parse=parse_seconds,
        least=0,
    )
    shutdown_timeout: float = setting(
        25.0,
        "Seconds that running requests may take after SIGTERM.",
        parse=parse_seconds,
        least=0,
    )
    timeout_keep_alive: float = setting(
        5.0,
        "Seconds that an idle connection is kept open.",
        parse=parse_seconds,
        least=0,
        environment=("VLLM_HTTP_TIMEOUT_KEEP_ALIVE",),
    )
    api_key: tuple[str, ...] = setting(
        (),
        "Keys, one of which every route but /health and /ping then needs.",
        shape=Shape.LIST,
        environment=("FASTRENDER_API_KEY", "VLLM_API_KEY"),
    )
    root_path: str = setting(
        "",
        "Prefix that a proxy leaves on the path; with or without the slash in front.",
        may_be_empty=True,
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "Origins of browsers that may call, as a JSON list.", shape=Shape.JSON
    )
    allowed_methods: tuple[str, ...] = setting(
        ("*",), "Methods that such browsers may use.", shape=Shape.JSON
    )
    allowed_headers: tuple[str, ...] = setting(
        ("*",), "Headers that such browsers may send.", shape=Shape.JSON
    )
    allow_credentials: bool = setting(False, "Let such browsers send cookies.")
    enable_request_id_headers: bool = setting(False, "Answer with an X-Request-Id header.")
    enable_tokenizer_info_endpoint: bool = setting(False, "Serve GET /tokenizer_info.")
    enable_fastapi_docs: bool = setting(True, "Serve GET /openapi.json.")
    middleware: tuple[str, ...] = setting(
        (),
        "Import path of an ASGI middleware to wrap the app in.",
        shape=Shape.REPEATED,
    )
    ssl_keyfile: str | None = setting(None, "Key file for TLS.")
    ssl_certfile: str | None = setting(None, "Certificate file for TLS.")
    ssl_ca_certs: str | None = setting(None, "Certificates that clients are checked against.")
    ssl_cert_reqs: int = setting(
        0,
        "Whether clients need a certificate (ssl.CERT_*).",
        parse=parse_count,
        least=0,
        most=2,
    )
    ssl_ciphers: str | None = setting(None, "Ciphers for TLS.")
    enable_ssl_refresh: bool = setting(False, "Load the TLS files anew when they change.")
    uvicorn_log_level: str = setting("info", "How much is logged.", choices=LOG_LEVELS)
    enable_uvicorn_access_log: bool = setting(False, "Log a line for each request.")
    disable_access_log_for_endpoints: str = setting(
        "",
        "Paths that are left out of the access log, separated by commas.",
        may_be_empty=True,
    )

    # Engines.
    engine: tuple[str, ...] = setting(
        (),
        "Serve whole answers with what generates: `torch`, or base URLs of engines that speak "
        "/inference/v1/generate.",
        shape=Shape.LIST,
    )
    enable_scale_out: bool = setting(
        False,
        "Serve the routes of tokens beside whole answers; without an engine they always are.",
        environment=("VLLM_ENABLE_SCALE_OUT_ENDPOINTS",),
    )
    encode_engine: tuple[str, ...] = setting(
        (),
        "Base URLs of engines that encode media, before those that generate.",
        shape=Shape.LIST,
    )
    prefill_engine: tuple[str, ...] = setting(
        (),
        "Base URLs of engines that read prompts, and generate where there is no --decode-engine.",
        shape=Shape.LIST,
    )
    decode_engine: tuple[str, ...] = setting(
        (), "Base URLs of engines that generate from a prefill engine's cache.", shape=Shape.LIST
    )
    prefill_kv_params: dict[str, Any] = setting(
        {"do_remote_decode": True, "do_remote_prefill": False},
        "`kv_transfer_params` of prefill requests before --decode-engine's, unless the client's "
        "request has its own.",
        shape=Shape.JSON,
    )
    engine_api_key: str | None = setting(
        None, "Key that engines are sent.", environment=("FASTRENDER_ENGINE_API_KEY",)
    )
    engine_connect_timeout: float = setting(
        5.0, "Seconds in which an engine must accept a connection.", parse=parse_seconds, least=0.01
    )
    engine_timeout: float = setting(
        600.0,
        "Seconds for an engine's whole answer, or between two of a stream's chunks; 0 for no "
        "bound.",
        parse=parse_seconds,
        least=0,
    )
    engine_connections: int = setting(
        1_024,
        "Requests that one engine is sent at once, by each process; beyond it clients get 503.",
        parse=parse_count,
        least=1,
        most=65_535,
    )
    engine_answer_bytes: int = setting(
        256 << 20, "Largest answer of an engine that is read.", parse=parse_count, least=1
    )
    tokens_only: bool = setting(
        False, "Of an engine, serve the /render, /derender and /inference routes alone."
    )
    role: str = setting(
        "all",
        "The torch engine's part: everything, vision towers alone (encode), or all but those.",
        choices=("all", "encode", "prefill-decode"),
    )
    device: str = setting("auto", "What the torch engine runs on.", choices=("auto", "cuda", "cpu"))
    max_num_seqs: int = setting(
        32,
        "Sequences that the torch engine generates at once.",
        parse=parse_count,
        least=1,
        most=4_096,
    )
    max_num_batched_tokens: int = setting(
        1_024,
        "Prompt tokens that it reads between two steps of generation.",
        parse=parse_count,
        least=1,
        most=1 << 20,
    )
    engine_queue_limit: int = setting(
        256,
        "Requests that may wait for it before new ones get 429.",
        parse=parse_count,
        least=0,
    )
    kv_cache_gb: float = setting(
        0.0,
        "Gibibytes for keys and values; 0 for most of what is free on a GPU, or 4 on a CPU.",
        parse=parse_seconds,
        least=0,
        most=1 << 20,
    )
    embedding_cache_gb: float = setting(
        1.0,
        "Gibibytes for embeddings of images, on the device; and of an encode worker, for those "
        "that it has published.",
        parse=parse_seconds,
        least=0,
        most=1 << 20,
    )
    ec_ttl: float = setting(
        300.0,
        "Seconds that a published embedding is kept for who it was announced to.",
        parse=parse_seconds,
        least=0.1,
    )
    ec_peers: tuple[str, ...] = setting(
        (),
        "Encode workers, as host or host:port, that embeddings may be fetched from; this host's "
        "always may.",
        shape=Shape.LIST,
    )
    ec_host: str | None = setting(
        None, "Name or address that prefill workers reach this encode worker by; found if none."
    )
    ec_token: str | None = setting(
        None,
        "Secret that encode and prefill workers share.",
        environment=("FASTRENDER_EC_TOKEN",),
    )
    ec_timeout: float = setting(
        10.0, "Seconds that fetching an embedding may take.", parse=parse_seconds, least=0.1
    )

    def __post_init__(self) -> None:
        """Check every value, and those that hang together."""
        for name, declaration in declared(type(self)).items():
            value = getattr(self, name)
            # A library's caller may write `max_model_len="32k"`, or give paths as objects.
            if isinstance(value, str) and declaration.kind in (bool, int, float):
                object.__setattr__(self, name, value := declaration.read(name, value))
            elif isinstance(value, os.PathLike) and declaration.kind is str:
                object.__setattr__(self, name, value := os.fspath(value))
            declaration.check(name, value)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
        if self.enable_auto_tool_choice and not self.tool_call_parser:
            raise ConfigError("--enable-auto-tool-choice needs --tool-call-parser")
        # With formats of one's own only the native half knows all names.
        parsers = (*TOOL_PARSERS, AUTO)
        if not self.tool_parser_file and self.tool_call_parser not in (None, *parsers):
            raise ConfigError(
                f"tool-call-parser: unknown value `{shown(self.tool_call_parser)}`; "
                f"known: {', '.join(parsers)}"
            )
        if bool(self.ssl_keyfile) != bool(self.ssl_certfile):
            raise ConfigError("--ssl-keyfile and --ssl-certfile go together")
        if self.ssl_certfile is None and (self.ssl_ca_certs is not None or self.ssl_cert_reqs):
            raise ConfigError(
                "--ssl-ca-certs and --ssl-cert-reqs need --ssl-keyfile and --ssl-certfile"
            )
        for modality, limit in self.limit_mm_per_prompt.items():
            count = limit.get("count", 0) if isinstance(limit, dict) else limit
            if isinstance(count, bool) or not isinstance(count, int) or count < 0:
                raise ConfigError(
                    f"limit-mm-per-prompt: `{modality}` must be a count, not `{shown(limit)}`"
                )
        for pair in self.reasoning_effort_map.items():
            if unknown := [effort for effort in pair if effort not in REASONING_EFFORTS]:
                known = ", ".join(REASONING_EFFORTS)
                raise ConfigError(
                    f"reasoning-effort-map: unknown effort `{unknown[0]}`; known: {known}"
                )
        self._check_engines()
        read_time(self.strftime_now)
        root_path = self.root_path.strip("/")
        if any(mark in root_path for mark in "?# ") or "://" in root_path:
            raise ConfigError(f"root-path: `{self.root_path}` is no path; give one such as `/api`")
        object.__setattr__(self, "root_path", f"/{root_path}" if root_path else "")

    @property
    def generates(self) -> bool:
        """Whether whole answers are served."""
        return bool(self.engine or self.prefill_engine)

    @property
    def hides_scale_out(self) -> bool:
        """Whether the routes of tokens are refused, as by an inference server that is not told."""
        return self.generates and not (self.enable_scale_out or self.tokens_only)

    def _check_engines(self) -> None:
        for name in ("engine", "encode_engine", "prefill_engine", "decode_engine"):
            words = ",".join(getattr(self, name)).split(",")
            urls = tuple(word.strip().rstrip("/") for word in words if word.strip())
            object.__setattr__(self, name, urls)
            if name == "engine" and urls == ("torch",):
                continue
            for url in urls:
                check_engine_url(dashed(name), url)
        split = self.encode_engine or self.decode_engine
        if self.engine == ("torch",) and self.workers > 1:
            raise ConfigError("--engine torch is one process: --workers must be 1")
        if self.tokens_only and not self.generates:
            raise ConfigError("--tokens-only needs an engine")
        if self.role != "all" and self.engine != ("torch",):
            raise ConfigError(f"--role {self.role} needs --engine torch")
        if self.role == "encode" and self.hides_scale_out:
            raise ConfigError("--role encode has no routes without --enable-scale-out")
        if self.engine and self.prefill_engine:
            raise ConfigError("--engine and --prefill-engine say the same; give one of them")
        if split and not self.prefill_engine:
            raise ConfigError("--encode-engine and --decode-engine need --prefill-engine")

    @classmethod
    def resolve(cls, given: Mapping[str, Any], environment: Mapping[str, str]) -> "RenderConfig":
        """The config of the settings `given`, the environment's where they say nothing."""
        settings = declared(cls)
        values = {
            name: value
            for name, declaration in settings.items()
            if (value := from_environment(name, declaration, environment)) is not None
        }
        if unknown := given.keys() - settings.keys():
            raise ConfigError(f"unknown setting `{min(unknown)}`")
        return cls(**{**values, **given})

    def native_settings(self, template_names: Collection[str] = ()) -> dict[str, Any]:
        """The `settings` of a native render spec; `template_names` are the tokenizer's own."""
        settings = {
            name: getattr(self, name)
            for name, declaration in declared(type(self)).items()
            if declaration.native
        }
        return settings | {
            "chat_template": read_template(self.chat_template, template_names),
            "tool_formats": [_read_format(path) for path in self.tool_parser_file],
            "strftime_now": read_time(self.strftime_now),
        }


def check_engine_url(flag: str, url: str) -> None:
    """Raise `ConfigError` unless `url` is a base to which an engine's paths can be added."""
    parts = urllib.parse.urlsplit(url)
    try:
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.query or parts.fragment or parts.username is not None:
        raise ConfigError(
            f"{flag}: `{shown(url)}` is no base URL of an engine such as http://host:8000"
        )


def read_time(value: str | None) -> dict[str, int] | None:
    """The fields of an ISO 8601 local time, by name, as the native half takes them."""
    if value is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is not None:
        raise ConfigError(
            f"strftime-now: `{shown(value)}` is no local time such as 2026-12-01T12:00:00"
        )
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond")
    return {name: getattr(time, name) for name in names}


def _read_format(path: str) -> str:
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"tool-parser-file: cannot read `{shown(path)}` ({error})") from error


def read_template(value: str | None, template_names: Collection[str] = ()) -> str | None:
    """The source that `--chat-template` means, or the name if it is one of the tokenizer's own."""
    if value is None or value in template_names:
        return value
    if any(mark in value for mark in "{}\n"):
        return value
    try:
        return pathlib.Path(value).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        why = (error.strerror or why) if isinstance(error, OSError) else why
        names = ", ".join(sorted(template_names)) or "none"
        raise ConfigError(
            f"chat-template: cannot read the file `{shown(value)}` ({why.lower()}); "
            f"it is no literal template either, and the tokenizer's named ones are: {names}"
        ) from error
