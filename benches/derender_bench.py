"""Compare derendering over HTTP: the servers' CPU for whole answers and for streams by chunks.

The answer is a tool call of hermes with one long string argument, the case that costs a parser
that reads the text anew the most. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import http.client
import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from httpbench.servers import BenchError, Server

if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = (
    " --served-model-name m --host 127.0.0.1 --port {port} --max-model-len 32768"
    " --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3"
)
FASTRENDER = "fastrender serve {model}" + FLAGS
DERENDER = "/v1/chat/completions/derender"
PROMPT_TOKENS = 300
TOOL = {
    "type": "function",
    "function": {
        "name": "write",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "body": {"type": "string"}},
        },
    },
}
START, END = (
    '<tool_call>\n{"name": "write", "arguments": {"path": "notes.txt", "body": "',
    '"}}\n</tool_call>',
)
WORDS = "The river rose over the old stone bridge, and nobody in the town slept that night. "


@dataclass(frozen=True, slots=True)
class Output:
    """Ids of an answer, and what they stand for."""

    ids: list[int]
    arguments: str


class Client:
    """One connection that is kept."""

    def __init__(self, server: Server) -> None:
        """Connect to a server that runs."""
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request; any status but 200 is an error."""
        data = json.dumps(body).encode()
        self._connection.request("POST", path, data, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            text = answer[:300].decode(errors="replace")
            raise BenchError(f"{self._server.name} answers {response.status}: {text}")
        read: dict[str, Any] = json.loads(answer)
        return read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit status."""
    options = _parse(arguments)
    # A plain SIGTERM would leave the servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        _run(options)
    except BenchError as error:
        print(f"derender_bench: {error}", file=sys.stderr)
        return 1
    return 0


def _run(options: argparse.Namespace) -> None:
    commands = {"fastrender": options.fastrender}
    if options.vllm:
        commands["vllm"] = options.vllm
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    start_body = json.dumps(body).encode()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in commands.items():
            lengths = options.lengths if name == "fastrender" else options.vllm_lengths
            with Server(name, command, Path(folder, name)) as server:
                server.start(options.model, "/v1/chat/completions/render", start_body, 300)
                figures[name] = _measure(server, options, lengths)
    _report(figures)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))


def _measure(server: Server, options: argparse.Namespace, lengths: list[int]) -> dict[str, Any]:
    client = Client(server)
    whole = _output(client, options.whole)
    _check(server, client, whole)
    for _ in range(5):
        client.post(DERENDER, _whole(whole))
    rounds = []
    for _ in range(options.rounds):
        server.settle(5)
        before, count = server.cpu_seconds(), 0
        deadline = time.monotonic() + options.seconds
        while time.monotonic() < deadline:
            client.post(DERENDER, _whole(whole))
            count += 1
        rounds.append((server.cpu_seconds() - before) / count * 1e3)
    streams = {}
    for length in lengths:
        output = _output(client, length)
        server.settle(5)
        before, began = server.cpu_seconds(), time.monotonic()
        arguments, sent = _stream(client, output)
        elapsed = time.monotonic() - began
        cpu = server.cpu_seconds() - before
        if arguments != output.arguments:
            raise BenchError(f"{server.name} streams other arguments: {arguments[:200]}")
        streams[length] = {"cpu": cpu, "wall": elapsed, "state_bytes": sent}
    return {"whole_tokens": options.whole, "whole_ms": median(rounds), "streams": streams}


def _output(client: Client, tokens: int) -> Output:
    """An answer of so many tokens, by the server's own tokenizer."""

    def ids(text: str) -> list[int]:
        body = {"model": "m", "prompt": text, "add_special_tokens": False}
        found: list[int] = client.post("/tokenize", body)["tokens"]
        return found

    words = ids(WORDS)
    room = tokens - len(ids(START)) - len(ids(END))
    text = WORDS * (room // len(words))
    while len(made := ids(START + text + END)) < tokens:
        text += "and "
    return Output(made, json.dumps({"path": "notes.txt", "body": text}))


def _request() -> dict[str, Any]:
    chat = {
        "model": "m",
        "messages": [{"role": "user", "content": "Write it down."}],
        "tools": [TOOL],
        "chat_template_kwargs": {"enable_thinking": False},
    }
    return {"model": "m", "chat_request": chat, "prompt_token_ids": [1] * PROMPT_TOKENS}


def _generated(ids: list[int], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": ids, "finish_reason": finish}
    return {"request_id": "r", "choices": [choice]}


def _whole(output: Output) -> dict[str, Any]:
    return {**_request(), "generate_response": _generated(output.ids, "stop")}


def _check(server: Server, client: Client, output: Output) -> None:
    message = client.post(DERENDER, _whole(output))["choices"][0]["message"]
    calls = message.get("tool_calls") or [{"function": {"arguments": ""}}]
    if calls[0]["function"]["arguments"] != output.arguments:
        raise BenchError(f"{server.name} reads another call: {json.dumps(message)[:300]}")


def _stream(client: Client, output: Output) -> tuple[str, int]:
    """Token by token, the state carried along: the arguments, and the largest state's bytes."""
    arguments, state, largest = "", None, 0
    for at, token in enumerate(output.ids, 1):
        chunk = _generated([token], "stop" if at == len(output.ids) else None)
        body = {**_request(), "stream": True, "generate_chunk": chunk, "stream_state": state}
        answer = client.post(DERENDER, body)
        state = answer["stream_state"]
        for call in answer["chunk"]["choices"][0]["delta"].get("tool_calls") or []:
            arguments += call["function"]["arguments"] or ""
    largest = len(json.dumps(state))
    return arguments, largest


def _report(figures: dict[str, Any]) -> None:
    print("| server | whole answer, tokens | CPU ms | ratio |\n|---|---|---|---|")
    ours = figures["fastrender"]["whole_ms"]
    for name, figure in figures.items():
        ratio = figure["whole_ms"] / ours
        print(f"| {name} | {figure['whole_tokens']} | {figure['whole_ms']:.3f} | {ratio:.1f} |")
    print("\n| server | stream, tokens | CPU s | CPU µs a token | wall s | last state, bytes |")
    print("|---|---|---|---|---|---|")
    for name, figure in figures.items():
        for length, stream in figure["streams"].items():
            each = stream["cpu"] / int(length) * 1e6
            print(
                f"| {name} | {length} | {stream['cpu']:.2f} | {each:.0f} | {stream['wall']:.2f}"
                f" | {stream['state_bytes']} |"
            )


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    def lengths(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", required=True, help="Model folder, of a Qwen3.")
    parser.add_argument("--fastrender", default=FASTRENDER, help="Command of fastrender.")
    parser.add_argument("--vllm", help="Command of vLLM's renderer; left out, ours is alone.")
    parser.add_argument("--whole", type=int, default=2000, help="Tokens of a whole answer.")
    parser.add_argument("--lengths", type=lengths, default=[1000, 2000, 4000, 8000])
    parser.add_argument("--vllm-lengths", type=lengths, default=[250, 500, 1000])
    parser.add_argument("--seconds", type=float, default=2.0, help="Of whole answers, a round.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="Write the figures here too.")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
