import pytest
from starlette.testclient import TestClient

from fastrender.config import RenderConfig
from fastrender.server.app import Application
from fastrender.server.keys import ApiKeys
from fastrender.settings import ConfigError
from stand_in import Renderer

GUARDED = [
    *("/v1/chat/completions/render", "/v1/completions/render", "/tokenize", "/detokenize"),
    *("/v1/chat/completions/derender", "/inference/v1/generate", "/metrics", "/docs"),
    *("/openapi.json", "/invocations", "/v1/models", "/V1/models", "/version", "/load"),
    *("/v1%2Fmodels", "/%761/models", "/v1/models/", "/nowhere", "/", "/health/", "/Health"),
    *("/health/../v1/models", "/ping/x", "/healthz", "/metrics/", "/health;x", "/health%2f"),
]


def make_client(**settings: object) -> TestClient:
    config = RenderConfig(**{"api_key": ("k", "other"), **settings})  # type: ignore[arg-type]
    return TestClient(Application(Renderer(), config), raise_server_exceptions=False)


@pytest.mark.parametrize("root_path", ["", "/a"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", GUARDED)
def test_every_route_but_the_probes_needs_a_key(path: str, method: str, root_path: str) -> None:
    client = make_client(root_path=root_path)
    for prefix in {"", root_path}:
        answer = client.request(method, prefix + path)
        assert answer.status_code == 401
        if method != "HEAD":
            assert answer.content == b'{"error":"Unauthorized"}'


@pytest.mark.parametrize("path", ["//v1/models", "//health", "/a//health"])
def test_doubled_slashes_do_not_help(path: str) -> None:
    client = make_client(root_path="/a")
    assert client.get(f"http://testserver{path}").status_code == 401


@pytest.mark.parametrize("path", ["/health", "/ping", "/a/health", "/a/ping"])
def test_probes_need_no_key(path: str) -> None:
    assert make_client(root_path="/a").get(path).status_code == 200


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer k", 200),
        ("bearer other", 200),
        ("BEARER k", 200),
        ("Bearer  k", 401),
        ("Bearer kk", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("Basic k", 401),
        ("k", 401),
        ("", 401),
    ],
)
def test_the_key_is_a_bearer_token(authorization: str, status: int) -> None:
    answer = make_client().get("/v1/models", headers={"authorization": authorization})
    assert answer.status_code == status


def test_keys_are_compared_whole() -> None:
    keys = ApiKeys(["é-key", "x"])
    assert keys.admit("Bearer é-key".encode())
    assert not keys.admit(b"Bearer \xe9-key")
    assert not ApiKeys([]).admit(b"Bearer ")
    assert not ApiKeys([])


def test_without_keys_all_is_open_and_an_empty_one_is_refused() -> None:
    assert make_client(api_key=()).get("/v1/models").status_code == 200
    with pytest.raises(ConfigError, match="api-key: an empty value"):
        make_client(api_key=("",))


BROWSER = {"origin": "https://a.example"}
PREFLIGHT = {**BROWSER, "access-control-request-method": "POST"}


def test_browsers_may_ask_without_a_key_and_then_need_one() -> None:
    client = make_client(allowed_origins=("https://a.example",))
    asked = client.options("/tokenize", headers=PREFLIGHT)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "https://a.example"
    refused = client.post("/tokenize", json={}, headers=BROWSER)
    assert refused.status_code == 401
    assert "access-control-allow-origin" not in refused.headers
    assert "vary" not in refused.headers
    headers = {**BROWSER, "authorization": "Bearer k"}
    answered = client.post("/tokenize", json={}, headers=headers)
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == "https://a.example"
    assert answered.headers["vary"] == "Origin"


def test_other_origins_are_not_let_in() -> None:
    client = make_client(allowed_origins=("https://b.example",))
    assert client.options("/tokenize", headers=PREFLIGHT).status_code == 400
    headers = {**BROWSER, "authorization": "Bearer k"}
    answered = client.post("/tokenize", json={}, headers=headers)
    assert "access-control-allow-origin" not in answered.headers


def test_without_origins_a_preflight_is_a_request_like_any() -> None:
    assert make_client().options("/tokenize", headers=PREFLIGHT).status_code == 401
    assert make_client(api_key=()).options("/tokenize", headers=PREFLIGHT).status_code == 405
