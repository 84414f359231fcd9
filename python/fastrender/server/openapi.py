"""The OpenAPI description of the routes that a server has."""

from typing import Any

from fastrender.config import RenderConfig
from fastrender.server.scale_out import SCALE_OUT
from fastrender.version import own_version

_STRING = {"type": "string"}
_INTEGER = {"type": "integer"}
_BOOLEAN = {"type": "boolean"}
_IDS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_OBJECT = {"type": "object"}
_SECURITY = "apiKey"


def describe(config: RenderConfig) -> dict[str, Any]:
    """An OpenAPI 3.1 document of what `config` makes the server answer."""
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "fastrender",
            "version": own_version(),
            "description": "OpenAI requests in, token ids out, on the wire of vLLM's renderer.",
        },
        "paths": _paths(config),
        "components": {"schemas": _SCHEMAS},
    }
    if config.root_path:
        document["servers"] = [{"url": config.root_path}, {"url": "/"}]
    if config.api_key:
        scheme = {"type": "http", "scheme": "bearer"}
        document["components"]["securitySchemes"] = {_SECURITY: scheme}
        document["security"] = [{_SECURITY: []}]
    return document


def _paths(config: RenderConfig) -> dict[str, Any]:
    generate = _reference("GenerateRequest")
    paths = {
        "/v1/chat/completions/render": _render(
            "Render a chat request.", "ChatCompletionRequest", generate
        ),
        "/v1/completions/render": _render(
            "Render a completion request, one answer a prompt.",
            "CompletionRequest",
            {"type": "array", "items": generate},
        ),
        "/v1/chat/completions/derender": _render(
            "An engine's answer to a chat request, or a chunk of one, as OpenAI's clients have it.",
            "DerenderChatRequest",
            {"anyOf": [_reference("ChatCompletion"), _reference("DerenderedChunk")]},
        ),
        "/v1/completions/derender": _render(
            "The same for completion requests.",
            "DerenderCompletionRequest",
            {"anyOf": [_reference("Completion"), _reference("DerenderedChunk")]},
        ),
        "/v1/chat/completions/derender/stream": _stream(
            "An engine's chunks in, a chat client's chunks out, on one connection."
        ),
        "/v1/completions/derender/stream": _stream("The same for completion requests."),
        "/tokenize": _render("Token ids of a text or of messages.", "TokenizeRequest", _TOKENIZED),
        "/detokenize": _render("The text of token ids.", "DetokenizeRequest", _DETOKENIZED),
        "/v1/models": _get("The names that requests may use.", _MODELS),
        "/health": _probe("get", "200 while the process lives."),
        "/ping": {
            **_probe("get", "200 while the server takes requests."),
            **_probe("post", "200 while the server takes requests."),
        },
        "/version": _get("Versions of the wire and of the package.", _VERSION),
        "/load": _get("Requests in the engine: a renderer has none.", _OBJECT),
        "/kv_event_sources": _get("Sources of cache events: a renderer has none.", _OBJECT),
        "/invocations": {
            "post": {
                "summary": "SageMaker's route, of whose kinds of request a renderer takes none.",
                "responses": {"400": _failure("Always.")},
            }
        },
        "/metrics": {
            "get": {
                "summary": "Metrics for Prometheus.",
                "responses": {
                    "200": {"description": "Metrics.", "content": {"text/plain": {}}},
                },
            }
        },
    }
    if config.generates:
        paths["/v1/chat/completions"] = _answer(
            "Answer a chat request, whole or streamed.",
            "ChatCompletionRequest",
            _reference("ChatCompletion"),
        )
        paths["/v1/completions"] = _answer(
            "Complete prompts.", "CompletionRequest", _reference("Completion")
        )
    if config.hides_scale_out:
        paths = {path: item for path, item in paths.items() if path not in SCALE_OUT}
    if config.enable_tokenizer_info_endpoint:
        paths["/tokenizer_info"] = _get("How the tokenizer is set up.", _OBJECT)
    if config.enable_fastapi_docs:
        paths["/openapi.json"] = _get("This document.", _OBJECT)
    return paths


def _render(summary: str, request: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": _json(_reference(request))},
            "responses": {
                "200": {"description": "The answer.", "content": _json(answer)},
                "400": _failure("The request is wrong."),
                "404": _failure("The model is not served here."),
                "408": _failure("The body did not arrive in time."),
                "413": _failure("The body is too large."),
                "503": _failure("Too much waits already, or the server shuts down."),
            },
        }
    }


def _answer(summary: str, request: str, answer: dict[str, Any]) -> dict[str, Any]:
    """As a render route, with what engines add."""
    described = _render(summary, request, answer)
    responses = described["post"]["responses"]
    responses["200"]["content"]["text/event-stream"] = {"schema": _STRING}
    responses["429"] = _failure("The engine takes no more requests now.")
    responses["502"] = _failure("The engine's answer cannot be used.")
    responses["503"] = _failure("No engine answers, or too much waits already.")
    responses["504"] = _failure("The engine took too long.")
    return described


def _stream(summary: str) -> dict[str, Any]:
    events = {"schema": _STRING}
    return {
        "post": {
            "summary": summary,
            "description": "The body's first line is a derender request without chunk and state, "
            "the others are the engine's chunks; `[DONE]` ends them.",
            "requestBody": {
                "required": True,
                "content": {"application/x-ndjson": events, "text/event-stream": events},
            },
            "responses": {
                "200": {
                    "description": "Chunks, then `[DONE]`.",
                    "content": {"text/event-stream": events},
                },
                "400": _failure("The request is wrong."),
                "404": _failure("The model is not served here."),
                "408": _failure("Nothing came for too long."),
                "413": _failure("A line is too long."),
                "503": _failure("Too much is under way already, or the server shuts down."),
            },
        }
    }


def _get(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": {"description": "The answer.", "content": _json(answer)}}
    return {"get": {"summary": summary, "responses": responses}}


def _probe(method: str, summary: str) -> dict[str, Any]:
    responses = {"200": {"description": "Yes."}, "503": _failure("The server shuts down.")}
    return {method: {"summary": summary, "security": [], "responses": responses}}


def _failure(description: str) -> dict[str, Any]:
    return {"description": description, "content": _json(_reference("Error"))}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _record(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


_MESSAGES = {"type": "array", "items": _record(["role"], role=_STRING)}
_TOKENIZED = _record(
    ["count", "max_model_len", "tokens", "token_strs"],
    count=_INTEGER,
    max_model_len=_INTEGER,
    tokens=_IDS,
    token_strs=_nullable({"type": "array", "items": _STRING}),
)
_DETOKENIZED = _record(["prompt"], prompt=_STRING)
_MODELS = _record(["object", "data"], object=_STRING, data={"type": "array", "items": _OBJECT})
_VERSION = _record(["version", "fastrender"], version=_STRING, fastrender=_STRING)
_SCHEMAS = {
    "ChatCompletionRequest": _record(
        ["messages"],
        model=_nullable(_STRING),
        messages=_MESSAGES,
        tools=_nullable({"type": "array", "items": _OBJECT}),
        stream=_nullable(_BOOLEAN),
    ),
    "CompletionRequest": _record(
        ["prompt"],
        model=_nullable(_STRING),
        prompt={
            "anyOf": [
                _STRING,
                {"type": "array", "items": _STRING},
                _IDS,
                {"type": "array", "items": _IDS},
            ]
        },
        stream=_nullable(_BOOLEAN),
    ),
    "TokenizeRequest": {
        "anyOf": [
            _record(["prompt"], prompt=_STRING, return_token_strs=_nullable(_BOOLEAN)),
            _record(["messages"], messages=_MESSAGES, return_token_strs=_nullable(_BOOLEAN)),
        ]
    },
    "DetokenizeRequest": _record(["tokens"], model=_nullable(_STRING), tokens=_IDS),
    "GenerateRequest": _record(
        ["request_id", "token_ids", "sampling_params"],
        request_id=_STRING,
        token_ids=_IDS,
        sampling_params=_OBJECT,
        model=_nullable(_STRING),
        stream=_BOOLEAN,
    ),
    "GenerateResponse": _record(
        ["choices"],
        request_id=_STRING,
        choices={
            "type": "array",
            "items": _record(
                ["index"],
                index=_INTEGER,
                token_ids=_nullable(_IDS),
                finish_reason=_nullable(_STRING),
                stop_reason=_nullable({"anyOf": [_STRING, _INTEGER]}),
                logprobs=_nullable(_OBJECT),
            ),
        },
        prompt_token_ids=_nullable(_IDS),
    ),
    "DerenderChatRequest": _record(
        [],
        model=_nullable(_STRING),
        stream=_BOOLEAN,
        generate_response=_reference("GenerateResponse"),
        generate_chunk=_reference("GenerateResponse"),
        stream_state=_nullable(_OBJECT),
        prompt_tokens=_nullable(_INTEGER),
        prompt_token_ids=_nullable(_IDS),
        chat_request=_nullable(_reference("ChatCompletionRequest")),
    ),
    "DerenderCompletionRequest": _record(
        [],
        model=_nullable(_STRING),
        stream=_BOOLEAN,
        generate_responses={"type": "array", "items": _reference("GenerateResponse")},
        generate_chunk=_reference("GenerateResponse"),
        stream_state=_nullable(_OBJECT),
        completion_request=_nullable(_reference("CompletionRequest")),
    ),
    "ChatCompletion": _record(
        ["id", "choices", "usage"],
        id=_STRING,
        choices={"type": "array", "items": _record(["index", "message"], message=_OBJECT)},
        usage=_OBJECT,
    ),
    "Completion": _record(
        ["id", "choices", "usage"],
        id=_STRING,
        choices={"type": "array", "items": _record(["index", "text"], text=_STRING)},
        usage=_OBJECT,
    ),
    "DerenderedChunk": _record(["chunk", "stream_state"], chunk=_OBJECT, stream_state=_OBJECT),
    "Error": _record(
        ["error"],
        error=_record(
            ["message", "type", "param", "code"],
            message=_STRING,
            type=_STRING,
            param=_nullable(_STRING),
            code=_INTEGER,
        ),
    ),
}
