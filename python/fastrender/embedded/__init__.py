"""The model inside the package: what is served when nobody names one.

A small tokenizer, a chat template and the configs of a tiny Qwen3-VL; no weights.
`scripts/make_embedded_model.py` makes the files.
"""

import pathlib

EMBEDDED_MODEL = "fastrender/tiny"
FOLDER = pathlib.Path(__file__).parent / "tiny"
