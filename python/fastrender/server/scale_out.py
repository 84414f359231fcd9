"""The routes of tokens, which an inference server has only when it is told to."""

from typing import Final

GENERATE: Final = "/inference/v1/generate"
ABORT: Final = "/inference/v1/abort_requests"
EMBEDDINGS: Final = "/inference/v1/embeddings"
SCALE_OUT: Final = frozenset(
    [
        *(
            f"/v1/{kind}/{half}"
            for kind in ("chat/completions", "completions")
            for half in ("render", "derender", "derender/stream")
        ),
        GENERATE,
        ABORT,
    ]
)
