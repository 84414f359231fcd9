"""`load`: from what a user calls a model to what a renderer needs to know of it."""

import codecs
import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from fastrender import models
from fastrender.config import EMBEDDED_MODEL, RenderConfig
from fastrender.model_folder import hub
from fastrender.model_folder.chat_templates import processor_template, tokenizer_templates
from fastrender.model_folder.files import FolderFiles, ModelFolderError, read_bytes
from fastrender.model_folder.generation_config import (
    SamplingDefaults,
    eos_token_ids,
    sampling_defaults,
)
from fastrender.model_folder.image_processor import ImageProcessing, image_processing
from fastrender.model_folder.model_config import (
    ModelConfig,
    length_without_config,
    max_model_len,
    model_dtype,
    read_config,
)
from fastrender.model_folder.spec import ModelSpec
from fastrender.model_folder.tokenizer_config import (
    class_name,
    special_tokens,
    tokenizer_file,
    tokenizer_spec,
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_LONGEST_HUB_ID = 96
_EMBEDDED_FOLDER = pathlib.Path(__file__).parents[1] / "embedded"
_MEGABYTE = 1 << 20
_DTYPES = {"half": "float16", "float": "float32"}


@dataclasses.dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model folder that was read: `spec` for rendering, the rest for what comes after."""

    spec: ModelSpec
    path: pathlib.Path
    tokenizer_path: pathlib.Path
    config: Mapping[str, Any]
    architectures: tuple[str, ...]
    family: models.ModelFamily | None
    dtype: str
    # None for a model without images, or whose family is not processed here.
    image: ImageProcessing | None

    @property
    def tokenizer_json(self) -> bytes:
        """The content of tokenizer.json."""
        where = f"`{self.tokenizer_path}`"
        try:
            content = read_bytes(self.tokenizer_path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ModelFolderError(f"cannot read {where}: {why}") from error
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise ModelFolderError(f"{where} is UTF-16; save it as UTF-8")
        if not content:
            raise ModelFolderError(f"{where} is empty")
        # The mark that some editors begin a file with is no JSON.
        return content.removeprefix(codecs.BOM_UTF8)

    def render_spec(self, settings: Mapping[str, Any]) -> bytes:
        """The JSON that the native renderer is made from, with `settings` beside the model."""
        model = self.spec.to_json()
        for name, value in model.items():
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise ModelFolderError(
                    f"the {name.replace('_', ' ')} of `{self.spec.name}` holds a lone surrogate, "
                    "which no text can"
                ) from error
        return json.dumps({"model": model, "settings": dict(settings)}).encode()


def load(config: RenderConfig) -> ModelFolder:
    """Read the model folder that `config` names: a local folder, a hub id, or the embedded model.

    Whatever is wrong with it raises `ModelFolderError`.

    >>> folder = load(RenderConfig(model="fastrender/tiny"))
    >>> folder.spec.max_model_len
    32768
    """
    files = _open(config.model, config.revision, config)
    tokenizer_files = files
    if config.tokenizer is not None or config.tokenizer_revision is not None:
        tokenizer_files = _open(
            config.tokenizer or config.model, config.tokenizer_revision or config.revision, config
        )
    model_config = read_config(files, config.hf_overrides)
    architectures = model_config.architectures if model_config else ()
    tokenizer_path = tokenizer_file(tokenizer_files, config.tokenizer_mode, architectures)
    tokenizer_config = tokenizer_files.json("tokenizer_config.json")
    tokenizer_class = class_name(tokenizer_config, model_config)
    tokens = special_tokens(tokenizer_files, tokenizer_config, tokenizer_class)
    if model_config is None:
        length = length_without_config(files, tokenizer_config, config.max_model_len)
    else:
        length = max_model_len(model_config, files, config.max_model_len)
    sampling = _sampling(files, config)
    dtype = _dtype(config.dtype, model_config)
    family = models.resolve(architectures)
    spec = ModelSpec(
        name=config.model,
        served_names=config.served_model_name or (config.model,),
        max_model_len=length,
        vocab_size=model_config.vocab_size if model_config else None,
        model_type=model_config.model_type if model_config else "",
        special_tokens=tokens.named,
        chat_templates=tokenizer_templates(tokenizer_files, tokenizer_config),
        processor_chat_template=processor_template(tokenizer_files),
        default_sampling_params=sampling.params,
        max_tokens_cap=sampling.max_tokens_cap,
        eos_token_ids=eos_token_ids(
            _generation_files(files, config), model_config.top if model_config else None
        ),
        media_placeholders=family.media_placeholders if family else {},
        image_placeholder=family.image.placeholder if family and family.image else None,
        tokenizer=tokenizer_spec(
            tokenizer_files,
            tokenizer_config,
            tokens,
            tokenizer_class,
            cache_bytes=config.tokenizer_cache_mb * _MEGABYTE,
        ),
    )
    return ModelFolder(
        spec=spec,
        path=files.path,
        tokenizer_path=tokenizer_path,
        config=model_config.top.values if model_config else {},
        architectures=architectures,
        family=family,
        dtype=dtype,
        image=image_processing(family.image, files, config, dtype)
        if family and family.image
        else None,
    )


def _dtype(asked: str, config: ModelConfig | None) -> str:
    """The number type that `--dtype` means for a model."""
    if asked == "auto":
        return model_dtype(config) if config else "bfloat16"
    return _DTYPES.get(asked, asked)


def _open(name: str, revision: str | None, config: RenderConfig) -> FolderFiles:
    """The folder of that name, from the package, the disk or the hub."""
    if name == EMBEDDED_MODEL:
        return FolderFiles(name, _EMBEDDED_FOLDER)
    # os.path, since pathlib raises for names that are too long.
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return FolderFiles(name, pathlib.Path(path))
    if os.path.isfile(path):
        raise ModelFolderError(
            f"`{name}` is a file; fastrender reads a model folder, which holds config.json and "
            "tokenizer.json"
        )
    if _HUB_ID.fullmatch(name) is None or len(name) > _LONGEST_HUB_ID:
        raise ModelFolderError(f"`{name}` is neither a folder nor a hub id")
    return hub.download(
        name, revision=revision, token=config.hf_token, cache_folder=config.download_dir
    )


def _sampling(files: FolderFiles, config: RenderConfig) -> SamplingDefaults:
    """The sampling defaults of `--generation-config`: `auto`, `vllm`, or a folder or hub id."""
    overrides = config.override_generation_config
    if config.generation_config == "vllm":
        return sampling_defaults(None, overrides, own_folder=False)
    own_folder = config.generation_config != "auto"
    return sampling_defaults(_generation_files(files, config), overrides, own_folder=own_folder)


def _generation_files(files: FolderFiles, config: RenderConfig) -> FolderFiles:
    """The folder of generation_config.json; `vllm` leaves out its sampling alone."""
    source = config.generation_config
    return files if source in ("auto", "vllm") else _open(source, None, config)
