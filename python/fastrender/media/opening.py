"""Opening images: which formats are read, what their headers must say, how they are turned."""

import contextlib
import io
import warnings
from collections.abc import Iterator

from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from fastrender.errors import RequestError
from fastrender.media.failures import refused
from fastrender.media.limits import MediaLimits, RequestBudget

# Those of vLLM 0.33 (`multimodal/image.py`), in its order: the raster formats that Pillow reads in
# process. Missing are EPS, WMF, BUFR, GRIB, HDF5 and MPEG.
FORMATS = (
    *("AVIF", "BLP", "BMP", "CUR", "DCX", "DDS", "DIB", "FITS", "FLI", "FTEX", "GBR", "GIF"),
    *("ICNS", "ICO", "IM", "IMT", "IPTC", "JPEG", "JPEG2000", "MCIDAS", "MSP", "PCD", "PCX"),
    *("PIXAR", "PNG", "PPM", "PSD", "QOI", "SGI", "SPIDER", "SUN", "TGA", "TIFF", "WEBP", "XBM"),
    *("XPM", "XVTHUMB"),
)
BYTES_PER_PIXEL = 4
_TURNING = frozenset(range(2, 9))
# No other format opens what begins so; the rest need not be asked.
_SIGNATURES = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"RIFF": "WEBP"}

# All plugins at once: first opens may come from several threads.
Image.init()
# A client could fill the log with them, and they say nothing that an answer does not.
warnings.filterwarnings("ignore", module=r"PIL(\.|$)")


def opened(data: bytes, limits: MediaLimits) -> Image.Image:
    """The image with its header read and its size found acceptable; no pixel is decoded.

    Raises a 400 for what is no image, of an unknown format, or too large.
    """
    with undecodable_is_refused():
        image = _recognized(data)
        check_size(image, limits)
        return image


def _recognized(data: bytes) -> Image.Image:
    for signature, name in _SIGNATURES.items():
        if data.startswith(signature):
            with contextlib.suppress(UnidentifiedImageError):
                return Image.open(io.BytesIO(data), formats=(name,))
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise refused("cannot load the image: it is of no known format") from None


def check_size(image: Image.Image, limits: MediaLimits) -> None:
    """Raise a 400 for an image of too many pixels."""
    width, height = image.size
    if 0 < limits.image_pixels < width * height:
        raise refused(
            f"the image is too large: {width}x{height} is more than {limits.image_pixels} pixels"
        )


def charge(image: Image.Image, budget: RequestBudget) -> None:
    """Take the decoded size of `image` from a request's budget; raises a 400 if it is spent."""
    if not budget.decode(image.width * image.height * BYTES_PER_PIXEL):
        bound = budget.limits.request_decoded_bytes
        raise refused(f"the images of the request take more than {bound} bytes once decoded")


def turned(image: Image.Image) -> Image.Image:
    """The image as its EXIF orientation wants it shown, or itself.

    Orientations that are not in the standard, and EXIF data that cannot be read or written back,
    turn nothing; nor do pixels that cannot be decoded, which is for the caller to find: Pillow
    forgives some damage behind the pixels at a second `load`, and so does vLLM.
    """
    with contextlib.suppress(Exception):
        image.load()
        if image.getexif().get(ExifTags.Base.Orientation, 1) in _TURNING:
            return ImageOps.exif_transpose(image)
    return image


@contextlib.contextmanager
def undecodable_is_refused() -> Iterator[None]:
    """Make a 400 of whatever Pillow raises in the block: it reads nothing but a client's bytes."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise refused(f"cannot load the image: {reason}") from error
