import json
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_spec_validator import validate
from starlette.testclient import TestClient

from fastrender.config import RenderConfig
from fastrender.server.app import Application
from fastrender.version import own_version
from stand_in import Renderer

JSON = {"content-type": "application/json"}
HOT = [
    ("/v1/chat/completions/render", "chat"),
    ("/v1/completions/render", "completions"),
    ("/tokenize", "tokenize"),
    ("/detokenize", "detokenize"),
]


def make_client(**settings: Any) -> TestClient:
    application = Application(Renderer(), RenderConfig(**settings))
    return TestClient(application, raise_server_exceptions=False)


@pytest.fixture
def client() -> TestClient:
    return make_client()


def envelope(message: str, type: str, code: int, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


@pytest.mark.parametrize(("path", "route"), HOT)
def test_a_hot_route_passes_the_body_to_the_native_half(
    client: TestClient, path: str, route: str
) -> None:
    answer = client.post(path, json={})
    assert answer.status_code == 200
    assert answer.json() == {"route": route, "request_id": None, "pad": ""}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.content))


def test_a_large_body_is_rendered_on_a_thread_with_the_same_answer(client: TestClient) -> None:
    body = json.dumps({"text": "x" * 200_000})
    answer = client.post("/tokenize", content=body, headers=JSON)
    assert answer.json()["route"] == "tokenize"


@pytest.mark.parametrize("size", [0, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_a_large_answer_arrives_whole(client: TestClient, size: int) -> None:
    answer = client.post("/tokenize", json={"pad": size})
    assert answer.json()["pad"] == "x" * size


def test_the_request_id_header_reaches_the_native_half(client: TestClient) -> None:
    answer = client.post("/tokenize", json={}, headers={"X-Request-Id": "abc"})
    assert answer.json()["request_id"] == "abc"
    assert "x-request-id" not in answer.headers


def test_request_id_headers_are_echoed_or_made() -> None:
    client = make_client(enable_request_id_headers=True, api_key=("k",))
    echoed = client.get("/v1/models", headers={"X-Request-Id": "abc"})
    assert (echoed.status_code, echoed.headers["x-request-id"]) == (401, "abc")
    made = [client.get("/health").headers["x-request-id"] for _ in range(2)]
    assert [len(value) for value in made] == [32, 32]
    assert made[0] != made[1]


def test_a_request_error_is_answered_as_the_native_half_says(client: TestClient) -> None:
    answer = client.post("/tokenize", content=b"{", headers=JSON)
    assert answer.status_code == 400
    assert answer.json() == envelope("the body is not JSON", "BadRequestError", 400, "body.1")


@pytest.mark.parametrize("padding", ["", " " * 100_000])
def test_a_failure_of_the_server_tells_nothing_of_the_inside(
    client: TestClient, padding: str
) -> None:
    answer = client.post("/tokenize", content='{"fail": true}' + padding, headers=JSON)
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "InternalServerError"
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 400),
        ("application/jsonx", 400),
        ("application/x-www-form-urlencoded", 400),
        (None, 400),
    ],
)
def test_only_json_is_read(client: TestClient, content_type: str | None, status: int) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = client.post("/tokenize", content=b"{}", headers=headers)
    assert answer.status_code == status
    if status != 200:
        expected = envelope("the content type must be application/json", "Bad Request", 400)
        assert answer.json() == expected


@pytest.mark.parametrize(("encoding", "status"), [("gzip", 400), ("br", 400), ("identity", 200)])
def test_encoded_bodies_are_refused(client: TestClient, encoding: str, status: int) -> None:
    headers = {**JSON, "content-encoding": encoding}
    answer = client.post("/tokenize", content=b"{}", headers=headers)
    assert answer.status_code == status


def in_pieces(size: int) -> Iterator[bytes]:
    for start in range(0, size, 1_000):
        yield b" " * min(1_000, size - start)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", [path for path, _ in HOT])
def test_a_body_over_the_limit_gets_413(path: str, chunked: bool) -> None:
    client = make_client(max_request_bytes=10_000)
    for size, status in [(10_000, 400), (10_001, 413)]:
        content = in_pieces(size) if chunked else b" " * size
        answer = client.post(path, content=content, headers=JSON)
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == status


def test_a_length_over_the_limit_is_refused_whatever_comes() -> None:
    client = make_client(max_request_bytes=10)
    headers = {**JSON, "content-length": "11"}
    answer = client.post("/tokenize", content=b"{}", headers=headers)
    assert answer.json()["error"]["type"] == "RequestTooLargeError"


def test_bodies_beyond_the_budget_get_503_and_give_it_back() -> None:
    client = make_client(max_buffered_bytes=1_000)
    for _ in range(2):
        answer = client.post("/tokenize", content=b" " * 1_001, headers=JSON)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        chunked = client.post("/tokenize", content=in_pieces(2_000), headers=JSON)
        assert chunked.status_code == 503
        fits = client.post("/tokenize", content=b"{}" + b" " * 998, headers=JSON)
        assert fits.status_code == 200


def test_models_lists_each_served_name(client: TestClient) -> None:
    body = client.get("/v1/models").json()
    first, second = body["data"]
    assert [first["id"], second["id"]] == ["m", "alias"]
    created = first.pop("created")
    permission = first.pop("permission")[0]
    assert list(first) == ["id", "object", "owned_by", "root", "parent", "max_model_len"]
    assert first["root"] == "some/model"
    assert first["max_model_len"] == 8_192
    assert permission.pop("id").startswith("modelperm-")
    assert permission.pop("created") == created
    assert permission == {
        "object": "model_permission",
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")]
)
def test_probes_answer_with_nothing(client: TestClient, method: str, path: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert "content-type" not in answer.headers


def test_small_routes(client: TestClient) -> None:
    version = {"version": "0.33.0", "fastrender": own_version()}
    assert client.get("/version").json() == version
    assert client.get("/load").json() == {"server_load": 0}
    assert client.get("/kv_event_sources").json() == {}
    invocation = client.post("/invocations", json={})
    assert invocation.status_code == 400
    assert invocation.json()["error"]["type"] == "BadRequestError"


def test_tokenizer_info_needs_its_flag(client: TestClient) -> None:
    assert client.get("/tokenizer_info").status_code == 404
    enabled = make_client(enable_tokenizer_info_endpoint=True)
    assert enabled.get("/tokenizer_info").json() == {"tokenizer_class": "StandIn"}


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/v1/chat/completions", "/v1/models/m", "/health/", "/docs", "/v1/models/", "//"],
)
def test_an_unknown_route_gets_404_in_the_envelope(client: TestClient, path: str) -> None:
    answer = client.post(path, json={})
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("NotFoundError", None, 404)


def test_a_route_that_this_version_lacks_gets_501(client: TestClient) -> None:
    answer = client.post("/v1/responses/render", json={})
    assert answer.status_code == 501
    assert answer.json()["error"]["type"] == "NotImplementedError"


def test_the_404_of_an_engines_route_names_the_renderers(client: TestClient) -> None:
    message = client.post("/v1/completions", json={}).json()["error"]["message"]
    assert "/v1/completions/render" in message


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions/render", {"POST"}),
        ("PUT", "/tokenize", {"POST"}),
        ("DELETE", "/v1/models", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_gets_405_and_the_right_ones(
    client: TestClient, method: str, path: str, allowed: set[str]
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed
    assert answer.json()["error"]["type"] == "MethodNotAllowedError"
    assert answer.json()["error"]["code"] == 405


def test_both_paths_work_with_a_root_path() -> None:
    client = make_client(root_path="a/b/")
    for prefix in ("", "/a/b"):
        assert client.get(f"{prefix}/health").status_code == 200
        assert client.post(f"{prefix}/tokenize", json={}).json()["route"] == "tokenize"
        assert client.get(f"{prefix}/v1/models").status_code == 200
    assert client.get("/a/bc/health").status_code == 404
    assert client.get("/a/b/a/b/health").status_code == 404


@pytest.mark.parametrize("root_path", ["", "/a"])
def test_openapi_describes_just_the_routes_that_there_are(root_path: str) -> None:
    settings = {"enable_tokenizer_info_endpoint": True, "api_key": ("k",), "root_path": root_path}
    client = make_client(**settings)
    headers = {"authorization": "Bearer k"}
    document = client.get("/openapi.json", headers=headers).json()
    validate(document)
    for path, operations in document["paths"].items():
        for method in operations:
            answer = client.request(method, path, headers=headers)
            assert answer.status_code not in (404, 405), path
    assert {path for path, _ in HOT} <= document["paths"].keys()


def test_openapi_can_be_turned_off() -> None:
    assert make_client(enable_fastapi_docs=False).get("/openapi.json").status_code == 404


def test_draining_answers_503_but_lives() -> None:
    application = Application(Renderer(), RenderConfig())
    client = TestClient(application)
    application.drain()
    for method, path in [("POST", "/tokenize"), ("GET", "/ping"), ("GET", "/v1/models")]:
        answer = client.request(method, path, json={})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.headers["connection"] == "close"
    assert client.get("/health").status_code == 200
