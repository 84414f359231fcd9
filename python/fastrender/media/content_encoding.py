"""Bodies that a server compressed unasked, inflated in pieces so that no bomb goes off."""

import zlib
from collections.abc import Iterable, Iterator

from fastrender.media.failures import unfetchable

_PIECE = 1 << 16
_EITHER_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


def inflated(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The content of a body with the header `Content-Encoding: encoding`, in small pieces.

    Raises a 422 for encodings other than gzip and deflate, and for data that is neither.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        yield from chunks
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise unfetchable(f"the URL's content is encoded as `{encoding[:32]}`, not plain or gzip")
    inflater = zlib.decompressobj(_EITHER_GZIP_OR_ZLIB)
    begun = False
    for chunk in chunks:
        rest = chunk
        while rest and not inflater.eof:
            try:
                piece = inflater.decompress(rest, _PIECE)
            except zlib.error:
                if begun or encoding != "deflate":
                    raise unfetchable("the URL's content is not the gzip it claims to be") from None
                # Some servers leave zlib's own header out.
                inflater = zlib.decompressobj(-zlib.MAX_WBITS)
                begun = True
                continue
            begun = True
            rest = inflater.unconsumed_tail
            if piece:
                yield piece
    # Output may be pending without input when a piece ended exactly at the bound.
    while begun and not inflater.eof and (piece := inflater.decompress(b"", _PIECE)):
        yield piece
    if not inflater.eof:
        raise unfetchable("the URL's compressed content ends too early")
