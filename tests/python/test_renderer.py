import json
import pathlib
import subprocess
import sys
import threading
import types
from collections.abc import Mapping

import pytest

from fastrender import Renderer, RequestError, model_folder
from folders import LLAMA, write_folder

CHAT = {"messages": [{"role": "user", "content": "Good morning!"}]}


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer()


def test_a_dict_gives_a_mapping_and_bytes_give_bytes(renderer: Renderer) -> None:
    answer = renderer.render_chat(CHAT, request_id="r")
    assert isinstance(answer, Mapping)
    assert answer["request_id"] == "chatcmpl-r"
    assert list(answer)[:2] == ["request_id", "token_ids"]
    assert renderer.render_chat(json.dumps(CHAT).encode(), request_id="r") == answer.body


def test_the_same_request_gives_the_same_bytes(renderer: Renderer) -> None:
    body = json.dumps({**CHAT, "request_id": "same"}).encode()
    assert renderer.render_chat(body) == renderer.render_chat(body)


def test_prompts_of_a_completion_request_are_answered_in_order(renderer: Renderer) -> None:
    first, second = renderer.render_completion({"prompt": [[7], [5, 6]], "request_id": "r"})
    assert (first["request_id"], first["token_ids"]) == ("cmpl-r-0", [7])
    assert (second["request_id"], second["token_ids"]) == ("cmpl-r-1", [5, 6])


def test_tokenize_and_detokenize_are_inverse(renderer: Renderer) -> None:
    text = "naïve 日本語 🦜 <|im_start|>user\n"
    tokens = renderer.tokenize({"prompt": text})["tokens"]
    assert renderer.detokenize({"tokens": tokens}) == {"prompt": text}


def test_a_request_that_cannot_be_served_raises_with_the_ready_answer(renderer: Renderer) -> None:
    with pytest.raises(RequestError) as raised:
        renderer.render_chat({**CHAT, "model": "other"})
    error = raised.value
    assert (error.status, error.type, error.param) == (404, "NotFoundError", "model")
    envelope = json.loads(error.body)["error"]
    assert list(envelope) == ["message", "type", "param", "code"]
    assert envelope["message"] == error.message == str(error)
    assert "other" in error.message


@pytest.mark.parametrize("part", [
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"image_url": "http://127.0.0.1/a.png"},
    {"type": "image_url", "image_url": {"url": "x"}, "uuid": "u"},
    {"type": "image_url", "image_url": None, "uuid": "never seen"},
    {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
])  # fmt: skip
def test_media_that_cannot_be_had_are_refused(renderer: Renderer, part: dict[str, object]) -> None:
    content = [{"type": "text", "text": "What is this?"}, part]
    with pytest.raises(RequestError) as raised:
        renderer.render_chat({"messages": [{"role": "user", "content": content}]})
    assert (raised.value.status, raised.value.type) == (400, "BadRequestError")


def test_audio_is_refused_as_a_modality_that_the_model_lacks(renderer: Renderer) -> None:
    content = [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]
    with pytest.raises(RequestError) as raised:
        renderer.render_chat({"messages": [{"role": "user", "content": content}]})
    assert (raised.value.status, raised.value.param) == (400, "audio")


def test_a_lone_surrogate_in_text_is_refused_and_elsewhere_ignored(renderer: Renderer) -> None:
    broken = json.dumps({"messages": [{"role": "user", "content": "\ud83d"}]}).encode()
    with pytest.raises(RequestError) as raised:
        renderer.render_chat(broken)
    assert raised.value.status == 400
    renderer.render_chat(json.dumps({**CHAT, "foo": "\ud83d"}).encode())


def test_threads_get_the_answers_that_one_thread_gets(renderer: Renderer) -> None:
    bodies = [
        json.dumps({
            "prompt": f"{i} " + "word " * 40 * i, "request_id": str(i),
            **({"truncate_prompt_tokens": 5} if i % 3 == 0 else {}),
        }).encode()
        for i in range(24)
    ]  # fmt: skip
    want = [renderer.render_completion(body) for body in bodies]
    got: list[list[bytes]] = [[] for _ in range(8)]

    def work(slot: int) -> None:
        got[slot].extend(renderer.render_completion(body) for body in bodies)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 8


def test_the_interpreter_runs_on_while_rust_works(renderer: Renderer) -> None:
    body = json.dumps({"prompt": "some words to be read " * 100_000}).encode()
    turns = 0
    done = threading.Event()

    def render() -> None:
        try:
            renderer.render("tokenize", body)
        finally:
            done.set()

    thread = threading.Thread(target=render)
    thread.start()
    while not done.is_set():
        turns += 1
        done.wait(0.0005)
    thread.join()
    assert turns > 2


IMPORTS_OF_A_RENDERER = """
import sys
import fastrender
fastrender.Renderer().render_chat({"messages": [{"role": "user", "content": "x"}]})
heavy = "torch transformers tokenizers starlette uvicorn httpx huggingface_hub numpy PIL"
print([name for name in heavy.split() if name in sys.modules])
"""


def test_importing_the_library_imports_neither_torch_nor_a_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_OF_A_RENDERER],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_any_kind_of_bytes_gives_bytes_and_a_string_is_refused(renderer: Renderer) -> None:
    request = {"messages": [{"role": "user", "content": "Hi"}], "request_id": "x"}
    body = json.dumps(request).encode()
    answer = renderer.render_chat(body)
    for kind in (bytearray, memoryview):
        assert renderer.render_chat(kind(body)) == answer
        prompt = kind(b'{"prompt": "a"}')
        assert json.loads(renderer.render_completion(prompt))[0]["token_ids"]
    read_only = types.MappingProxyType(request)
    assert renderer.render_chat(read_only).body == answer
    for wrong in (body.decode(), None, [request], 5):
        with pytest.raises(TypeError, match="a request is a mapping, or JSON as bytes, not `"):
            renderer.render_chat(wrong)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="encode a string first"):
            renderer.tokenize(wrong)  # type: ignore[arg-type]


def test_a_model_may_be_a_path_and_a_wrong_setting_is_named() -> None:
    folder = pathlib.Path(model_folder.__file__).parents[1] / "embedded"
    assert Renderer(folder).spec.name == str(folder)
    assert Renderer(model=folder, tokenizer=folder).spec.name == str(folder)
    for settings, message in (
        ({"model": 5}, "model: a string is needed, not `5`"),
        ({"omit_null": "perhaps"}, "omit-null: `perhaps` is neither true nor false"),
        ({"tokenizer_cache_mb": 1.5}, "tokenizer-cache-mb: a whole number is needed, not `1.5`"),
        ({"default_chat_template_kwargs": "{}"}, "default-chat-template-kwargs: a JSON object"),
    ):
        with pytest.raises(ValueError, match=message):
            Renderer(**settings)
    with pytest.raises(TypeError, match="'modell'"):
        Renderer(modell="x")


def test_the_tokenizers_setup_is_json_whatever_its_file_holds(tmp_path: pathlib.Path) -> None:
    folder = write_folder(
        tmp_path, {"config.json": LLAMA, "tokenizer_config.json": {"é": "\ud800"}}
    )
    info = Renderer(folder).tokenizer_info()
    assert "é".encode() in info
    assert json.loads(info)["é"] == "\ud800"


def test_the_time_that_templates_tell_can_be_fixed() -> None:
    template = "{{ strftime_now('%d %B %Y') }}"
    renderer = Renderer(strftime_now="2024-02-29T01:02:03", chat_template=template)
    rendered = renderer.render_chat({"messages": [{"role": "user", "content": "hi"}]})
    detokenized = renderer.detokenize({"tokens": rendered["token_ids"]})
    assert detokenized["prompt"] == "29 February 2024"
