"""The engine that the settings name."""

from typing import Any

from fastrender.config import RenderConfig
from fastrender.engine.interface import Engine
from fastrender.engine.remote import RemoteEngine, RemoteOptions
from fastrender.engine.split import SplitEngine
from fastrender.settings import ConfigError


def remote_engine(config: RenderConfig) -> Engine:
    """Engines of others, at the URLs of `--engine` or of `--prefill-engine` and its kind."""
    options = RemoteOptions.of(config)
    if config.engine:
        return RemoteEngine(config.engine, options)
    return SplitEngine(
        encode=RemoteEngine(config.encode_engine, options) if config.encode_engine else None,
        prefill=RemoteEngine(config.prefill_engine, options),
        decode=RemoteEngine(config.decode_engine, options) if config.decode_engine else None,
        kv_params=config.prefill_kv_params,
    )


def torch_engine(config: RenderConfig, renderer: Any) -> Engine:
    """The engine in this process, for the model of `renderer`, a `fastrender.renderer.Renderer`."""
    try:
        from fastrender.engine.local.engine import TorchEngine
    except ImportError as error:
        raise ConfigError(
            f"--engine torch needs the extra `torch`: pip install 'fastrender[torch]' ({error})"
        ) from error
    return TorchEngine(config, renderer)
