"""Server-sent events out of the pieces in which they come."""


class TooLongError(Exception):
    """An event that is longer than may be."""


class EventReader:
    """Finds the `data` of events; everything else about them is passed over."""

    def __init__(self, most_bytes: int) -> None:
        """No event may take more than `most_bytes`."""
        self._most_bytes = most_bytes
        self._rest = bytearray()
        # Where no line has ended yet.
        self._searched = 0
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that end in `piece`."""
        rest = self._rest
        rest += piece
        events = []
        start = 0
        while (end := rest.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(rest[start:end]).removesuffix(b"\r")
            start = end + 1
            if line.startswith(b"data:"):
                data = line[5:].removeprefix(b" ")
                self._data.append(data)
                self._held += len(data)
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
                self._held = 0
        del rest[:start]
        self._searched = len(rest)
        if len(rest) + self._held > self._most_bytes:
            raise TooLongError
        return events
