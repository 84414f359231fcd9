"""The HTTP server: routes, limits, keys, metrics and processes around a `Renderer`."""
