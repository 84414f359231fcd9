"""Request bodies that read like real traffic and never repeat.

Prose and code are Python's own manual and standard library, which every interpreter carries; JSON
rows and other scripts come from a seeded generator. No corpus is shipped.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from importlib.abc import SourceLoader
from pydoc_data.topics import topics
from random import Random
from typing import TYPE_CHECKING

from httpbench.pictures import jpeg_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

SERVED_NAME = "m"
CHAT_PATH = "/v1/chat/completions/render"
# Stands in a body where the load client writes the number of its pass; requests.lua knows it too.
STAMP = "@STAMP@"
STAMPED = 6

_MODULES = """
    argparse ast asyncio.base_events asyncio.tasks calendar collections configparser csv dataclasses
    datetime decimal difflib doctest email.message enum fractions ftplib functools gettext heapq
    http.client http.server imaplib inspect ipaddress json.decoder logging mailbox optparse pdb
    pickle pathlib plistlib pprint random shutil smtplib statistics subprocess tarfile textwrap
    threading tokenize traceback turtle typing unittest.mock uuid xml.dom.minidom zipfile
"""
_SYLLABLES = (
    "ba ce di fo gu ha je ki lo mu na pe qui ro sa te vi wo xa ye zo bri cla dre flo gri sto"
)
_CJK = """
    我们 今天 需要 检查 系统 的 请求 并且 回答 用户 问题 因为 数据 很 重要 如果 模型 不能 理解 文本
    東京 の 天気 は 晴れ です 明日 から 会議 が あります 新しい 機能 を 追加 してください 資料 確認
    안녕하세요 오늘 회의 자료 를 준비 했습니다 결과 확인 부탁드립니다 那么 结果 会 出现 错误
"""
_SPACED = """
    сегодня утром сервер отвечал медленно поэтому мы проверили журнал ошибок heute prüfen wir die
    Größe der Anfrage für jeden Schlüssel nous avons déjà vérifié les données où ça échoue mañana
    también señaló que la solución está lista güncelleme bitti teşekkürler đã kiểm tra dữ liệu trước
    khi gửi مرحبا اليوم نراجع النتائج הבקשה נשלחה היום परीक्षण सफल रहा 🙂 🚀 ✅
"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of request: how many bodies, and how long each is in characters of text."""

    name: str
    count: int
    characters: int
    connections: int
    turns: int = 1
    # Width and height of each picture that a body holds.
    pictures: tuple[tuple[int, int], ...] = ()
    repeated: bool = False
    omits_payload: bool = False


# Characters are such that prompts come to about 30, 2,000 and 32,000 tokens of Qwen3's; a run
# reports what they were.
SCENARIOS = (
    Scenario("short", 20_000, 54, 8),
    Scenario("2k", 3_000, 6_600, 8),
    Scenario("32k", 200, 106_500, 4),
    # The user's turns and the assistant's alike; each request holds all turns up to its own.
    Scenario("turns", 960, 1_200, 8, turns=24),
)
# For a model that takes images.
IMAGE_SCENARIOS = (
    Scenario("256x256", 400, 54, 4, pictures=((256, 256),)),
    Scenario("640x480", 120, 54, 4, pictures=((640, 480),)),
    Scenario("1024x1024", 60, 54, 4, pictures=((1024, 1024),)),
    Scenario("4 of 640x480", 40, 54, 4, pictures=((640, 480),) * 4),
    Scenario("repeated 1024x1024", 60, 54, 4, pictures=((1024, 1024),), repeated=True),
    Scenario("1024x1024 without payload", 60, 54, 4, pictures=((1024, 1024),), omits_payload=True),
)


class TextSource:
    """Passages of mixed text, the same for the same seed and Python version."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._prose = [
            text for topic in topics.values() for text in topic.split("\n\n") if len(text) > 60
        ]
        self._code = [block for name in _MODULES.split() for block in _blocks(name)]
        self._kinds: list[Callable[[], str]] = [
            self._prose_passage,
            self._code_passage,
            self._json_passage,
            self._cjk_passage,
            self._spaced_passage,
        ]
        self._cjk, self._spaced, self._syllables = _CJK.split(), _SPACED.split(), _SYLLABLES.split()

    def text(self, characters: int) -> str:
        """About `characters` of passages, one after the other, cut to length."""
        passages: list[str] = []
        length = 0
        while length < characters:
            (make,) = self.random.choices(self._kinds, (55, 20, 10, 8, 7))
            passages.append(make())
            length += len(passages[-1]) + 2
        return "\n\n".join(passages)[:characters]

    def sentence(self, characters: int) -> str:
        """One line of prose that starts at a word, now and then one in another script."""
        if self.random.random() < 0.1:
            return self._spaced_passage()[:characters]
        words = " ".join(self.random.choice(self._prose).split()).split(" ")
        start = self.random.randrange(max(1, len(words) - 8))
        return " ".join(words[start:])[:characters]

    def _prose_passage(self) -> str:
        return self.random.choice(self._prose)

    def _code_passage(self) -> str:
        return f"```python\n{self.random.choice(self._code)}\n```"

    def _json_passage(self) -> str:
        rows = [self._row() for _ in range(self.random.randrange(2, 8))]
        return json.dumps(rows, indent=self.random.choice((None, 2)), ensure_ascii=False)

    def _row(self) -> dict[str, object]:
        return {
            "id": f"{self.random.getrandbits(64):016x}",
            "name": f"{self._name()} {self._name()}",
            "email": f"{self._name().lower()}@{self._name().lower()}.example",
            "score": round(self.random.gauss(50, 20), 3),
            "created": f"20{self.random.randrange(10, 27)}-11-{self.random.randrange(1, 29):02}",
            "time": f"{self.random.randrange(24):02}:{self.random.randrange(60):02}Z",
            "tags": [self._name().lower() for _ in range(self.random.randrange(4))],
            "active": self.random.random() < 0.5,
        }

    def _name(self) -> str:
        return "".join(self.random.choices(self._syllables, k=self.random.randrange(2, 4))).title()

    def _cjk_passage(self) -> str:
        sentences = (
            "".join(self.random.choices(self._cjk, k=self.random.randrange(6, 16)))
            for _ in range(self.random.randrange(2, 6))
        )
        return "。".join(sentences) + "。"

    def _spaced_passage(self) -> str:
        return " ".join(self.random.choices(self._spaced, k=self.random.randrange(20, 60))) + "."


def make_bodies(scenario: Scenario, source: TextSource) -> Iterator[bytes]:
    """Bodies of a scenario, each with a stamp and its number in every message."""
    if scenario.turns > 1:
        yield from _growing_conversations(scenario, source)
        return
    if scenario.pictures:
        yield from _with_pictures(scenario, source)
        return
    one_line = scenario.characters < 200
    for i in range(scenario.count):
        text = (
            source.sentence(scenario.characters) if one_line else source.text(scenario.characters)
        )
        yield _body([_message("user", str(i), text)])


def _growing_conversations(scenario: Scenario, source: TextSource) -> Iterator[bytes]:
    # As many conversations side by side as there are connections, so that a turn is sent after the
    # answer to its forerunner.
    for group in range(scenario.count // (scenario.turns * scenario.connections)):
        conversations: list[list[dict[str, str]]] = [[] for _ in range(scenario.connections)]
        for turn in range(scenario.turns):
            for i, messages in enumerate(conversations):
                if turn > 0:
                    messages.append(
                        _message(
                            "assistant", f"{group}.{i}.{turn}a", source.text(scenario.characters)
                        )
                    )
                messages.append(
                    _message("user", f"{group}.{i}.{turn}", source.text(scenario.characters))
                )
                yield _body(messages)


def _with_pictures(scenario: Scenario, source: TextSource) -> Iterator[bytes]:
    urls: list[str] = []
    for i in range(scenario.count):
        if not (scenario.repeated and urls):
            # A picture that repeats is the same in each pass too.
            stamp = "0" * STAMPED if scenario.repeated else STAMP
            urls = [jpeg_url(source.random, *size, stamp, STAMPED) for size in scenario.pictures]
        message = _message("user", str(i), source.sentence(scenario.characters))
        text = {"type": "text", "text": message["content"]}
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        fields = {"mm_payload": "none"} if scenario.omits_payload else {}
        yield _body([{"role": "user", "content": [text, *images]}], **fields)


def _message(role: str, number: str, text: str) -> dict[str, str]:
    return {"role": role, "content": f"{number}-{STAMP} {text}"}


def _body(messages: Sequence[Mapping[str, object]], **fields: object) -> bytes:
    body = {"model": SERVED_NAME, "messages": messages, "temperature": 0.7, "max_tokens": 512}
    body |= fields
    return json.dumps(body, ensure_ascii=False).encode()


def stamped(body: bytes, number: int) -> bytes:
    """The body as the load client sends it in pass `number`."""
    return body.replace(STAMP.encode(), b"%06x" % number)


def write_records(path: Path, bodies: list[bytes]) -> None:
    """Write what requests.lua reads: for each body a line with its length, then the body."""
    with path.open("wb") as file:
        for body in bodies:
            file.write(b"%d\n%s" % (len(body), body))


def _blocks(module: str) -> list[str]:
    spec = importlib.util.find_spec(module)
    if spec is None or not isinstance(spec.loader, SourceLoader):
        return []
    source = spec.loader.get_source(module) or ""
    # Cut before each function and class, and keep cuts of a size that fits a chat.
    return [
        block.rstrip()[:4_000]
        for block in re.split(r"\n(?= *(?:def|class) )", source)
        if len(block) > 120
    ]
