"""A client's request and what was rendered of it, as far as it bears on having it answered."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from fastrender.errors import request_error

Kind: TypeAlias = Literal["chat", "completions"]
Fields: TypeAlias = dict[str, Any]

DERENDER: Final = {"chat": "chat_derender", "completions": "completions_derender"}
_REQUEST_KEY: Final = {"chat": "chat_request", "completions": "completion_request"}
# What a generate request means without its `max_tokens` differs from what a client's request does.
_DEFAULT_MAX_TOKENS: Final = 16
_DELTAS: Final = 1
# Meaningless to an engine that is not told of stop strings.
_OF_STOP_STRINGS: Final = ("include_stop_str_in_output", "output_text_buffer_length")


@dataclasses.dataclass(slots=True)
class Prompt:
    """One prompt of a request."""

    # What an engine is asked.
    body: bytes
    token_ids: list[int]
    # How many answers are wanted.
    choices: int
    # Stop strings are looked for here: an engine may have no tokenizer.
    stops: bool
    # Text that goes before each answer.
    echo: str = ""


@dataclasses.dataclass(slots=True)
class Asked:
    """A request."""

    kind: Kind
    request_id: str
    # What derendering needs of the client's own.
    request: Fields
    prompts: list[Prompt]
    streams: bool
    # The prompt's logprobs go before the answer's, which no stream can do.
    echoes_logprobs: bool = False
    # Of the answer there is only what goes before it.
    only_echoes: bool = False

    @property
    def model(self) -> str | None:
        """The model that the answer names."""
        model = self.request.get("model")
        return model if isinstance(model, str) else None

    @property
    def streams_through(self) -> bool:
        """Whether chunks go out as they come."""
        return self.streams and not self.echoes_logprobs and not self.only_echoes

    def opening(self, prompt: Prompt) -> bytes:
        """What a derendered stream begins with."""
        return _dumped(
            {
                "model": self.model,
                "prompt_tokens": len(prompt.token_ids),
                "prompt_token_ids": prompt.token_ids,
                _REQUEST_KEY[self.kind]: self.request,
            }
        )

    def derender_body(self, answers: list[Fields]) -> bytes:
        """The derender request for the engine's answer to each prompt."""
        lists: Fields = {
            "prompt_tokens": [len(prompt.token_ids) for prompt in self.prompts],
            "prompt_token_ids": [prompt.token_ids for prompt in self.prompts],
        }
        for answer in answers:
            answer["request_id"] = self.request_id
        if self.kind == "chat":
            lists = {key: value[0] for key, value in lists.items()}
            lists["generate_response"] = answers[0]
        else:
            lists["generate_responses"] = answers
        return _dumped({"model": self.model, _REQUEST_KEY[self.kind]: self.request, **lists})


def read(kind: Kind, body: bytes, rendered: bytes | memoryview) -> Asked:
    """A request that was rendered; so it is known to be good."""
    try:
        request: Fields = json.loads(body)
        written = bytes(rendered)
        answer = json.loads(written)
    except (ValueError, RecursionError):
        # The one thing that the renderer reads and this does not: numbers of thousands of digits.
        text = "the body holds a number of too many digits"
        raise request_error(text, "Bad Request", None, 400) from None
    generates: list[Fields] = [answer] if kind == "chat" else answer
    echo = request.get("echo") is True
    echoes_logprobs = echo and kind == "completions" and request.get("logprobs") is not None
    only_echoes = echo and kind == "completions" and request.get("max_tokens") == 0
    streams = bool(generates[0]["stream"])
    asked = Asked(
        kind=kind,
        request_id=generates[0]["request_id"],
        request=_slim(kind, request),
        prompts=[],
        streams=streams,
        echoes_logprobs=echoes_logprobs,
        only_echoes=only_echoes,
    )
    if len(generates) > 1:
        asked.request_id = asked.request_id.removesuffix("-0")
    for generate in generates:
        unchanged = written if kind == "chat" else None
        asked.prompts.append(_prompt(generate, unchanged, streams=asked.streams_through))
    if kind == "chat" and echo:
        asked.prompts[0].echo = _last_message(request)
    return asked


def _prompt(generate: Fields, written: bytes | None, *, streams: bool) -> Prompt:
    """`written` is `generate` as it was rendered."""
    sampling: Fields = generate["sampling_params"]
    changed = generate["stream"] != streams
    generate["stream"] = streams
    if "max_tokens" not in sampling:
        sampling["max_tokens"] = _DEFAULT_MAX_TOKENS
        changed = True
    # A stream does not tell the prompt's logprobs: then it is the engine that has to know strings.
    stops = any(sampling.get("stop") or ()) and (streams or sampling.get("prompt_logprobs") is None)
    if stops:
        sampling["stop"] = []
        sampling["output_kind"] = _DELTAS
        for key in _OF_STOP_STRINGS:
            sampling.pop(key, None)
        generate["stream"] = changed = True
    return Prompt(
        body=_dumped(generate) if changed or written is None else written,
        token_ids=generate["token_ids"],
        choices=sampling.get("n", 1),
        stops=stops,
    )


def _slim(kind: Kind, request: Fields) -> Fields:
    """A request without what only its prompt is made of, which may be large."""
    if kind == "completions":
        return {**request, "prompt": "-"}
    # Calls of earlier turns are counted.
    messages = [
        {"role": "assistant", "tool_calls": message["tool_calls"]}
        for message in request.get("messages") or ()
        if isinstance(message, Mapping)
        and message.get("role") == "assistant"
        and message.get("tool_calls")
    ]
    return {**request, "messages": messages}


def _last_message(request: Fields) -> str:
    """The text of the last message, if the answer continues what its author said."""
    message = request["messages"][-1]
    generates = request.get("add_generation_prompt", True)
    if generates and message.get("role") != "assistant":
        return ""
    content = message.get("content")
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "\n".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
