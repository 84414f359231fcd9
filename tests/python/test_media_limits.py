from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastrender.config import RenderConfig
from fastrender.media import MediaLimits, RequestBudget
from fastrender.media.single_flight import SingleFlight
from fastrender.settings import ConfigError

pytestmark = pytest.mark.timeout(30)


def test_without_settings_the_bounds_are_vllms() -> None:
    assert MediaLimits.from_config(RenderConfig()) == MediaLimits()
    assert MediaLimits() == MediaLimits(
        download_bytes=268_435_456,
        request_download_bytes=268_435_456,
        image_pixels=178_956_970,
        request_decoded_bytes=715_827_880,
    )


def test_vllms_variables_are_honoured() -> None:
    config = RenderConfig.resolve(
        {"allowed_media_domains": ("a", "b")},
        {
            "VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB": "1",
            "VLLM_MAX_MEDIA_REQUEST_DOWNLOAD_SIZE_MB": "2",
            "VLLM_MAX_IMAGE_PIXELS": "-1",
            "VLLM_MAX_MEDIA_REQUEST_DECODE_BYTES": "4",
            "VLLM_IMAGE_FETCH_TIMEOUT": "7",
            "VLLM_AUDIO_FETCH_TIMEOUT": "8",
            "VLLM_VIDEO_FETCH_TIMEOUT": "9",
            "VLLM_MEDIA_FETCH_MAX_RETRIES": "5",
            "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        },
    )
    assert MediaLimits.from_config(config) == MediaLimits(
        download_bytes=1_048_576,
        request_download_bytes=2_097_152,
        image_pixels=-1,
        request_decoded_bytes=4,
    )
    timeouts = (config.image_fetch_timeout, config.audio_fetch_timeout, config.video_fetch_timeout)
    assert timeouts == (7, 8, 9)
    assert (config.media_fetch_max_retries, config.media_url_allow_redirects) == (5, False)
    with pytest.raises(ConfigError, match="VLLM_IMAGE_FETCH_TIMEOUT"):
        RenderConfig.resolve({}, {"VLLM_IMAGE_FETCH_TIMEOUT": "soon"})


@pytest.mark.parametrize("kind", ["download", "decode"])
def test_threads_never_take_more_than_a_budget_has(kind: str) -> None:
    budget = RequestBudget(MediaLimits(request_download_bytes=1_000, request_decoded_bytes=1_000))
    take: Any = getattr(budget, kind)
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(take, [7] * 400))
    assert taken.count(True) == 142
    assert take(6)
    assert not take(1)


def test_a_flight_that_failed_is_forgotten() -> None:
    flights = SingleFlight[int]()
    with pytest.raises(ZeroDivisionError):
        flights.run("key", lambda: 1 // 0, patience=1)
    assert flights.run("key", lambda: 5, patience=1) == 5
    assert flights.run("key", lambda: 6, patience=1) == 6
