"""What an output says: its text as it grows, and the strings that end it."""

import json
from typing import Any

from fastrender.engine.local.params import SamplingParams
from fastrender.renderer import Renderer


class Text:
    """The text of one output. For one thread at a time."""

    def __init__(self, renderer: Renderer, params: SamplingParams, prompt: list[int]) -> None:
        """Read tokens that follow `prompt`."""
        request = {
            # The route wants one; the ids below are the real one.
            "prompt": "-",
            "skip_special_tokens": params.skip_special_tokens,
            "spaces_between_special_tokens": params.spaces_between_special_tokens,
            "include_stop_str_in_output": params.include_stop_str_in_output,
            "stop_token_ids": sorted(params.stop_token_ids),
            "ignore_eos": params.ignore_eos,
            "max_tokens": 1,
        }
        body: dict[str, Any] = {"completion_request": request, "prompt_token_ids": prompt}
        self._stream = renderer.derender_stream("completions_derender", json.dumps(body).encode())
        self._params = params
        longest = max((len(stop) for stop in params.stop), default=0)
        self._window = longest - 1 if longest else 0
        self._text = ""
        self._told = 0
        self._floor = 0
        # What was told to end it.
        self.stopped_by: str | None = None

    def push(self, token: int, finish_reason: str | None, generated: int) -> str:
        """The text that `token`, the `generated`th, makes certain; all that is left at an end."""
        chunk = json.loads(self._stream.push([token], finish_reason=finish_reason))
        new: str = chunk["choices"][0]["text"]
        searched = max(0, len(self._text) - self._window)
        self._text += new
        if generated <= self._params.min_tokens:
            # What is said so early ends nothing, nor begins what does.
            self._floor = len(self._text)
        elif self._params.stop:
            self._search(max(searched, self._floor))
        held = 0
        if self.stopped_by is None and finish_reason is None:
            held = 0 if self._params.include_stop_str_in_output else self._window
        end = max(self._told, len(self._text) - held)
        said = self._text[self._told : end]
        self._told = end
        return said

    def finish(self) -> str:
        """What was held back, at an end that no token brings."""
        if self.stopped_by is None and (last := self._stream.finish("abort")) is not None:
            self._text += json.loads(last)["choices"][0]["text"]
        said = self._text[self._told :]
        self._told = len(self._text)
        return said

    def _search(self, start: int) -> None:
        found = [
            (place, stop)
            for stop in self._params.stop
            if (place := self._text.find(stop, start)) >= 0
        ]
        if not found:
            return
        place, stop = min(found, key=lambda pair: pair[0])
        self.stopped_by = stop
        if self._params.include_stop_str_in_output:
            place += len(stop)
        self._text = self._text[:place]
