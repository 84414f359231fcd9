"""`load`: from what a user calls a model to what a renderer needs to know of it."""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fastrender import embedded, models
from fastrender.model_folder import hub
from fastrender.model_folder.chat_templates import processor_template, tokenizer_templates
from fastrender.model_folder.files import FolderFiles, ModelFolderError
from fastrender.model_folder.generation_config import SamplingDefaults, sampling_defaults
from fastrender.model_folder.model_config import (
    length_without_config,
    max_model_len,
    read_config,
    resolve_dtype,
)
from fastrender.model_folder.spec import ModelSpec
from fastrender.model_folder.tokenizer_config import (
    special_tokens,
    tokenizer_file,
    tokenizer_spec,
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_MEGABYTE = 1 << 20


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

    def tokenizer_json(self) -> bytes:
        """The content of tokenizer.json."""
        try:
            return self.tokenizer_path.read_bytes()
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise ModelFolderError(f"cannot read `{self.tokenizer_path}`: {why}") from error

    def render_spec(self, settings: Mapping[str, Any]) -> bytes:
        """The JSON that the native renderer is made from, with `settings` beside the model."""
        return json.dumps({"model": self.spec.to_json(), "settings": dict(settings)}).encode()


class FolderSettings(Protocol):
    """The settings that bear on the model folder; `fastrender.config.RenderConfig` has them."""

    @property
    def model(self) -> str: ...  # noqa: D102
    @property
    def tokenizer(self) -> str | None: ...  # noqa: D102
    @property
    def tokenizer_mode(self) -> str: ...  # noqa: D102
    @property
    def tokenizer_revision(self) -> str | None: ...  # noqa: D102
    @property
    def revision(self) -> str | None: ...  # noqa: D102
    @property
    def hf_token(self) -> str | None: ...  # noqa: D102
    @property
    def download_dir(self) -> str | None: ...  # noqa: D102
    @property
    def served_model_name(self) -> Sequence[str]: ...  # noqa: D102
    @property
    def max_model_len(self) -> int | None: ...  # noqa: D102
    @property
    def generation_config(self) -> str: ...  # noqa: D102
    @property
    def override_generation_config(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def hf_overrides(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def tokenizer_cache_mb(self) -> int: ...  # noqa: D102


def from_config(config: FolderSettings) -> ModelFolder:
    """Load the model folder that the settings name."""
    return load(
        config.model,
        tokenizer=config.tokenizer,
        tokenizer_mode=config.tokenizer_mode,
        tokenizer_revision=config.tokenizer_revision,
        revision=config.revision,
        hf_token=config.hf_token,
        download_dir=config.download_dir,
        served_model_name=config.served_model_name,
        max_model_len=config.max_model_len,
        generation_config=config.generation_config,
        override_generation_config=config.override_generation_config,
        hf_overrides=config.hf_overrides,
        cache_bytes=config.tokenizer_cache_mb * _MEGABYTE,
    )


def load(
    model: str = embedded.EMBEDDED_MODEL,
    *,
    tokenizer: str | None = None,
    tokenizer_mode: str = "auto",
    tokenizer_revision: str | None = None,
    revision: str | None = None,
    hf_token: str | None = None,
    download_dir: str | None = None,
    served_model_name: Sequence[str] = (),
    max_model_len: int | None = None,
    generation_config: str = "auto",
    override_generation_config: Mapping[str, Any] | None = None,
    hf_overrides: Mapping[str, Any] | None = None,
    dtype: str = "auto",
    cache_bytes: int = 64 * _MEGABYTE,
) -> ModelFolder:
    """Read the model folder that `model` names: a local folder, a hub id, or the embedded model.

    The settings are vLLM's flags of the same names. `max_model_len` of -1 is none, as for vLLM.
    Whatever is wrong with the folder raises `ModelFolderError`.

    >>> folder = load("fastrender/tiny")
    >>> folder.spec.max_model_len
    32768
    """
    hub_settings = _HubSettings(hf_token, download_dir)
    files = _open(model, revision, hub_settings)
    tokenizer_files = files
    if tokenizer is not None and (tokenizer, tokenizer_revision) != (model, revision):
        tokenizer_files = _open(tokenizer, tokenizer_revision or revision, hub_settings)
    config = read_config(files, hf_overrides or {})
    architectures = config.architectures if config else ()
    tokenizer_path = _tokenizer_path(tokenizer_files, tokenizer_mode, architectures, hub_settings)
    tokenizer_config = tokenizer_files.json("tokenizer_config.json")
    tokens = special_tokens(tokenizer_files, tokenizer_config, config)
    given_length = None if max_model_len == -1 else max_model_len
    sampling = _sampling(files, generation_config, override_generation_config or {}, hub_settings)
    family = models.resolve(architectures)
    spec = ModelSpec(
        name=model,
        served_names=tuple(served_model_name) or (model,),
        max_model_len=(
            _derived_length(config, files, given_length)
            if config
            else length_without_config(files, tokenizer_config, given_length)
        ),
        vocab_size=config.vocab_size if config else None,
        model_type=config.model_type if config else "",
        special_tokens=tokens.named,
        chat_templates=tokenizer_templates(tokenizer_files, tokenizer_config),
        processor_chat_template=processor_template(tokenizer_files),
        default_sampling_params=sampling.params,
        max_tokens_cap=sampling.max_tokens_cap,
        media_placeholders=family.media_placeholders if family else {},
        tokenizer=tokenizer_spec(
            tokenizer_files, tokenizer_config, tokens, cache_bytes=cache_bytes
        ),
    )
    return ModelFolder(
        spec=spec,
        path=files.path,
        tokenizer_path=tokenizer_path,
        config=config.top.values if config else {},
        architectures=architectures,
        family=family,
        dtype=resolve_dtype(config, dtype),
    )


# `load` has a parameter of the function's name.
_derived_length = max_model_len


@dataclasses.dataclass(frozen=True, slots=True)
class _HubSettings:
    token: str | None
    cache_folder: str | None


def _open(name: str, revision: str | None, settings: _HubSettings) -> FolderFiles:
    """The folder of that name, from the disk, the package or the hub."""
    if name == embedded.EMBEDDED_MODEL:
        return FolderFiles(name, embedded.FOLDER)
    path = pathlib.Path(name).expanduser()
    if path.is_dir():
        return FolderFiles(name, path)
    if path.is_file():
        raise ModelFolderError(
            f"`{name}` is a file; fastrender reads a model folder, which holds config.json and "
            "tokenizer.json"
        )
    if _HUB_ID.fullmatch(name) is None or len(name) > 96:
        raise ModelFolderError(f"`{name}` is neither a folder nor a hub id")
    path = hub.download(
        name, revision=revision, token=settings.token, cache_folder=settings.cache_folder
    )
    return FolderFiles(name, path)


def _tokenizer_path(
    files: FolderFiles, mode: str, architectures: Sequence[str], settings: _HubSettings
) -> pathlib.Path:
    return tokenizer_file(files, mode, architectures)


def _sampling(
    files: FolderFiles, source: str, overrides: Mapping[str, Any], settings: _HubSettings
) -> SamplingDefaults:
    """The sampling defaults of `--generation-config`: `auto`, `vllm`, or a folder or hub id."""
    if source == "auto":
        return sampling_defaults(files, overrides, own_folder=False)
    if source == "vllm":
        return sampling_defaults(None, overrides, own_folder=False)
    return sampling_defaults(_open(source, None, settings), overrides, own_folder=True)
