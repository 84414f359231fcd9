"""Requests with images through the library, on the embedded model."""

import base64
import concurrent.futures
import io
import json
import threading
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from PIL import Image

from fastrender import Renderer
from fastrender.errors import BusyError, RequestError

_PAD = "<|image_pad|>"


def _url(colour: tuple[int, int, int] = (1, 2, 3), size: tuple[int, int] = (64, 48)) -> str:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _image(url: str | None, **fields: Any) -> dict[str, Any]:
    value = None if url is None else {"url": url}
    return {"type": "image_url", "image_url": value, **fields}


def _request(*parts: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"messages": [{"role": "user", "content": content}], "request_id": "r", **fields}


def _refusal(renderer: Renderer, request: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(RequestError) as refused:
        renderer.render_chat(request)
    error: dict[str, Any] = json.loads(refused.value.body)["error"]
    assert error["code"] == refused.value.status == 400
    return error


def _tensor(item: str) -> dict[str, Any]:
    fields: dict[str, Any] = msgpack.unpackb(base64.b64decode(item), strict_map_key=False)
    return fields


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


@pytest.fixture(scope="module")
def pad(renderer: Renderer) -> int:
    ids: list[int] = renderer.tokenize({"prompt": _PAD, "add_special_tokens": False})["tokens"]
    assert len(ids) == 1
    return ids[0]


def _ranges(answer: Any) -> list[tuple[int, int]]:
    placeholders = answer["features"]["mm_placeholders"]["image"]
    return [(place["offset"], place["length"]) for place in placeholders]


def test_images_stand_where_the_conversation_has_them(renderer: Renderer, pad: int) -> None:
    sizes = [(64, 48), (320, 64), (64, 48)]
    urls = [_url((9, 9, number), size) for number, size in enumerate(sizes)]
    answer = renderer.render_chat(
        {
            "messages": [
                {"role": "user", "content": [_image(urls[0]), {"type": "text", "text": "a"}]},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": [{"type": "text", "text": "c"}, _image(urls[1])]},
                {"role": "tool", "content": [_image(urls[2])], "tool_call_id": "x"},
            ]
        }
    )
    ids, ranges = answer["token_ids"], _ranges(answer)
    assert len(ranges) == len(set(answer["features"]["mm_hashes"]["image"])) == 3
    assert [length for _, length in ranges] == [4, 20, 4]
    inside = [place for offset, length in ranges for place in range(offset, offset + length)]
    assert inside == [place for place, token in enumerate(ids) if token == pad]
    assert ranges == sorted(ranges)


def test_the_payload_is_the_picture(renderer: Renderer) -> None:
    answer = renderer.render_chat(_request(_image(_url((10, 20, 30)))))
    features = answer["features"]
    (item,) = features["kwargs_data"]["image"]
    fields = _tensor(item)
    dtype, shape, data = fields["pixel_values"]["data"]
    assert (dtype, shape[0]) == ("uint8", 16)
    pixels = data.data if isinstance(data, msgpack.ExtType) else data
    assert {*pixels} == {10, 20, 30}
    metadata = _tensor(features["mm_metadata"]["image"][0])
    assert metadata.keys() == {"image_grid_thw"}
    assert metadata["image_grid_thw"] == fields["image_grid_thw"]


@pytest.mark.parametrize("where", ["user", "system", "tool"])
def test_a_typed_placeholder_takes_no_images_place(renderer: Renderer, where: str) -> None:
    typed = {"role": where, "content": f"see {_PAD} here", "tool_call_id": "x"}
    user = {"role": "user", "content": [{"type": "text", "text": "look:"}, _image(_url())]}
    plain = renderer.render_chat({"messages": [user]})
    answer = renderer.render_chat({"messages": [typed, user]})
    ((offset, length),) = _ranges(answer)
    ((plain_offset, _),) = _ranges(plain)
    # The same tail, from the image on.
    assert answer["token_ids"][offset:] == plain["token_ids"][plain_offset:]
    assert length == 4
    text = renderer.detokenize({"tokens": answer["token_ids"]})["prompt"]
    assert text.count(f"see {_PAD} here") == 1


def test_answers_do_not_depend_on_what_is_cached() -> None:
    bodies = [json.dumps(_request(_image(_url((n % 3, 0, 0))))).encode() for n in range(9)]
    cold = [Renderer(mm_processor_cache_gb=0).render_chat(body) for body in bodies[:3]]
    warm = Renderer()
    assert [warm.render_chat(body) for body in bodies] == cold * 3
    stats = warm.stats()
    assert (stats["image_cache_hits"], stats["image_cache_entries"]) == (6, 3)


def test_the_cache_stays_within_its_bytes() -> None:
    small = Renderer(mm_processor_cache_gb=0.0005)
    for red in range(60):
        small.render_chat(_request(_image(_url((red, 0, 0)))))
        assert small.stats()["image_cache_bytes"] <= 0.0005 * (1 << 30)
    assert 0 < small.stats()["image_cache_entries"] < 60


def test_an_image_without_data_is_served_by_its_uuid_or_refused() -> None:
    renderer = Renderer()
    named = _request(_image(_url(), uuid="cat"))
    first = renderer.render_chat(named)
    again = renderer.render_chat(_request(_image(None, uuid="cat")))
    assert dict(first) == dict(again)
    other = renderer.render_chat(_request(_image(_url())))
    assert first["features"]["mm_hashes"] != other["features"]["mm_hashes"]
    _refusal(renderer, _request(_image(None, uuid="dog")))
    _refusal(Renderer(mm_processor_cache_gb=0), _request(_image(None, uuid="cat")))


@pytest.mark.parametrize("fields", [{"mm_payload": "none"}, {"return_mm_kwargs": False}])
def test_without_payload_only_the_header_is_read(fields: dict[str, Any]) -> None:
    renderer = Renderer()
    file = io.BytesIO()
    Image.effect_noise((64, 48), 90).convert("RGB").save(file, "JPEG")
    cut = file.getvalue()[:-400]
    url = "data:image/jpeg;base64," + base64.b64encode(cut).decode()
    answer = renderer.render_chat(_request(_image(url), **fields))
    assert answer["features"]["kwargs_data"] is None
    assert answer["features"]["payload_omitted"] == {}
    assert _ranges(answer)[0][1] == 4
    assert renderer.stats()["image_cache_entries"] == 0
    _refusal(renderer, _request(_image(url)))
    _refusal(Renderer(verify_media=True), _request(_image(url), **fields))
    whole = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    full, none = (renderer.render_chat(_request(_image(whole), **more)) for more in ({}, fields))
    assert full["token_ids"] == none["token_ids"]
    assert full["features"]["mm_hashes"] == none["features"]["mm_hashes"]


def test_the_count_of_images_is_limited() -> None:
    renderer = Renderer(limit_mm_per_prompt={"image": 2})
    image = _image(_url())
    assert len(_ranges(renderer.render_chat(_request(image, image)))) == 2
    _refusal(renderer, _request(image, image, image))
    _refusal(Renderer(limit_mm_per_prompt={"image": 0}), _request(image))


def test_a_cut_goes_around_images_not_through_them(renderer: Renderer) -> None:
    image = _image(_url())
    whole = renderer.render_chat(_request("x " * 40, image, "end"))
    ((offset, length),) = _ranges(whole)
    total = len(whole["token_ids"])
    kept = renderer.render_chat(
        _request("x " * 40, image, "end", truncate_prompt_tokens=total - offset)
    )
    assert _ranges(kept) == [(0, length)]
    assert kept["token_ids"] == whole["token_ids"][offset:]
    inside = total - offset - 2
    _refusal(renderer, _request("x " * 40, image, "end", truncate_prompt_tokens=inside))


def test_options_of_a_request_need_trust(renderer: Renderer) -> None:
    options = {"mm_processor_kwargs": {"max_pixels": 32 * 32 * 4}}
    image = _image(_url(size=(320, 320)))
    _refusal(renderer, _request(image, **options))
    trusting = Renderer(trust_request_mm_kwargs=True)
    plain, small = (trusting.render_chat(_request(image, **more)) for more in ({}, options))
    assert _ranges(small)[0][1] == 4 < _ranges(plain)[0][1]
    assert plain["features"]["mm_hashes"] != small["features"]["mm_hashes"]


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png,plain",
        "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(50)).decode(),
        "ftp://example.com/a.png",
        "not a url",
        "file:///etc/passwd",
    ],
)
def test_an_image_that_is_none_is_the_clients_fault(renderer: Renderer, url: str) -> None:
    with pytest.raises(RequestError) as refused:
        renderer.render_chat(_request(_image(_url()), _image(url)))
    assert refused.value.status in (400, 422)


def test_too_many_at_once_are_refused_and_places_come_back() -> None:
    renderer = Renderer(request_queue_limit=1)
    pipeline = renderer.images
    assert pipeline is not None
    gate, running = threading.Event(), []
    body = json.dumps(_request(_image(_url()))).encode()

    def begin() -> Any:
        begun = renderer.begin("chat", body)
        assert not isinstance(begun, bytes)
        return begun

    for _ in range(64):
        pipeline._working.submit(gate.wait)
    while len(running) < 70:
        try:
            running.append(renderer.complete(begin()))
        except BusyError:
            break
    assert 0 < len(running) < 70
    running[0].cancel()
    gate.set()
    with pytest.raises(concurrent.futures.CancelledError):
        running[0].answer.result(timeout=20)
    answers = {job.answer.result(timeout=20) for job in running[1:]}
    assert len(answers) == 1
    assert renderer.render("chat", body) == answers.pop()


def test_many_threads_get_the_answers_that_one_gets(renderer: Renderer) -> None:
    bodies = [
        json.dumps(_request(_image(_url((0, n, 0), (200 + 40 * n, 300))))).encode()
        for n in range(8)
    ]
    want = [renderer.render_chat(body) for body in bodies]
    fresh = Renderer()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(fresh.render_chat, bodies * 4)) == want * 4
