"""Runs a server with the stand-in renderer: `serve_stand_in.py FLAG…`, as `fastrender serve`."""

import os
import sys
import time

import stand_in
from fastrender.arguments import parse
from fastrender.config import RenderConfig
from fastrender.logs import configure_logging
from fastrender.server import sockets


def load(config: RenderConfig) -> stand_in.Renderer:
    time.sleep(float(os.environ.get("STAND_IN_LOAD_SECONDS", "0")))
    if os.environ.get("STAND_IN_LOAD_FAILS"):
        raise ValueError("the folder `x` lacks config.json")
    return stand_in.Renderer()


def main() -> int:
    config = parse(sys.argv[1:], os.environ, command="serve").config
    configure_logging(config)
    bound = sockets.bind(config)
    started = time.perf_counter()
    try:
        if config.workers > 1:
            from fastrender.server.workers import supervise

            code = supervise(config, load, bound, started)
        else:
            from fastrender.server.serve import serve

            code = serve(config, load(config), bound, started)
    finally:
        sockets.release(config, bound)
    from fastrender.server.serve import leave

    return leave(code)


if __name__ == "__main__":
    sys.exit(main())
