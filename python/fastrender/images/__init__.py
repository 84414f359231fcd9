"""The images of a request: fetched, decoded, processed and kept, side by side and within bounds.

Between `fastrender.media`, which knows no models, and the renderer, which knows no pixels.
"""

from fastrender.images.pipeline import ImagePipeline

__all__ = ["ImagePipeline"]
