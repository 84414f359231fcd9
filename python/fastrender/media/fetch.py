"""`Fetcher`: the bytes that a URL of a request means."""

import time
from typing import Self

from fastrender.config import RenderConfig
from fastrender.errors import RequestError
from fastrender.media import data_url
from fastrender.media.addresses import Resolver, system_resolver
from fastrender.media.download import BudgetSpent, Downloader, DownloadRules
from fastrender.media.failures import again, refused, unfetchable
from fastrender.media.limits import MediaLimits, RequestBudget
from fastrender.media.local_files import LocalFiles
from fastrender.media.single_flight import SingleFlight


class Fetcher:
    """Fetches what `data:`, `http:`, `https:` and `file:` URLs name, within the settings' bounds.

    Its methods block; any number of threads may call them. What is asked for twice at once is
    downloaded once.

    >>> with Fetcher(RenderConfig()) as fetcher:
    ...     fetcher.fetch("data:image/png;base64,aGVsbG8=", "image")
    b'hello'
    """

    def __init__(
        self,
        config: RenderConfig,
        *,
        resolve: Resolver = system_resolver,
        retry_pause: float = 1.0,
    ) -> None:
        """Raises `ConfigError` for a folder of media that is not there, or an impossible proxy.

        `resolve` is how names become addresses, `retry_pause` the seconds before the second
        attempt at a URL.
        """
        self.limits = MediaLimits.from_config(config)
        self._timeouts = {
            "image": config.image_fetch_timeout,
            "audio": config.audio_fetch_timeout,
            "video": config.video_fetch_timeout,
        }
        self._time_limit = config.media_fetch_time_limit
        rules = DownloadRules(
            allow_private=config.allow_private_media,
            use_proxies=config.media_use_proxies,
            domains=frozenset(config.allowed_media_domains),
            follow_redirects=config.media_url_allow_redirects,
            attempts=config.media_fetch_max_retries,
            pause=retry_pause,
            largest=self.limits.download_bytes,
        )
        self._downloader = Downloader(rules, resolve)
        self._files = LocalFiles(config.allowed_local_media_path, self.limits.download_bytes)
        self._flights = SingleFlight[bytes]()

    def __enter__(self) -> Self:
        """The fetcher itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close its connections."""
        self.close()

    def close(self) -> None:
        """Close the connections; fetches that run fail."""
        self._downloader.close()

    def fetch(
        self,
        url: str,
        modality: str,
        *,
        budget: RequestBudget | None = None,
        time_limit: float | None = None,
    ) -> bytes:
        """The bytes of `url`; `budget` is that of the request it stands in.

        Raises `RequestError`: 400 (`param` null) for a URL that cannot be or may not be asked, 422
        (`param` `image_url`, whatever the modality) for what came of asking. vLLM 0.33,
        `multimodal/media/connector.py`, answers 500 where the network or a server failed, and to
        `file:` without a folder.
        """
        if data_url.is_data_url(url):
            return data_url.decode(data_url.split(url)[1])
        scheme = url.partition(":")[0].lower()
        if scheme == "file":
            return self._files.read(url)
        if scheme not in ("http", "https"):
            raise refused("the URL must be an HTTP, data or file URL")
        limit = self._time_limit if time_limit is None else min(time_limit, self._time_limit)
        return self._download(
            url, modality, budget or RequestBudget(self.limits), time.monotonic() + limit
        )

    def _download(self, url: str, modality: str, budget: RequestBudget, end: float) -> bytes:
        timeout = self._timeouts.get(modality, self._timeouts["image"])
        while (left := end - time.monotonic()) > 0:
            charged = False

            def work(left: float = left) -> bytes:
                nonlocal charged
                charged = True
                return self._downloader.get(url, timeout=timeout, time_limit=left, budget=budget)

            try:
                data = self._flights.run(url, work, patience=left)
            except BudgetSpent:
                if not charged:
                    # It was another request's; this one has its own.
                    continue
                raise self._spent() from None
            except TimeoutError:
                break
            except RequestError as error:
                raise again(error) from None
            if not charged and not budget.download(len(data)):
                raise self._spent()
            return data
        raise unfetchable("cannot fetch media from the URL: it took too long")

    def _spent(self) -> RequestError:
        bound = self.limits.request_download_bytes
        return unfetchable(f"the media of the request are larger than {bound} bytes together")
