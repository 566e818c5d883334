"""What a line of input must be answered with, told from the protocol and not from the program (JSON-RPC 2.0)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias, cast

from tests.support.program.wire_process import Json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600


@dataclass(frozen=True)
class Answered:
    """The line is a request: one answer with this id."""

    call_id: object


@dataclass(frozen=True)
class Faulty:
    """The line is no message: one error with the id null, or with the id that could be read."""

    code: int
    call_id: object = None


@dataclass(frozen=True)
class Ignored:
    """The line is a notification, an answer or blank. `may_fail` for an answer that may be malformed."""

    may_fail: bool = False


Expectation: TypeAlias = Answered | Faulty | Ignored
Expect: TypeAlias = Callable[[bytes], Expectation]


def read_json(line: bytes) -> Any:
    """Read a line as a lenient reader of UTF-8 would. Raises ValueError for what is no JSON."""
    try:
        value = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse)
        return json.loads(json.dumps(value).encode(), object_pairs_hook=dict)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def plain(value: object) -> object:
    """Return an id as it is answered: halves of surrogate pairs are replaced."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def expect_on_wire(line: bytes) -> Expectation:
    """Return what the wire protocol answers to a line (wire spec 1.3)."""
    if not line.strip():
        return Ignored()
    try:
        value = read_json(line)
    except ValueError:
        return Faulty(PARSE_ERROR)
    if not isinstance(value, dict):
        return Faulty(INVALID_REQUEST)
    message = cast("Json", value)
    call_id = message.get("id")
    has_id = isinstance(call_id, str) or type(call_id) is int
    if message.get("jsonrpc", "2.0") != "2.0":
        return Faulty(INVALID_REQUEST)
    if "method" not in message:
        return Ignored(may_fail=True) if has_id else Faulty(INVALID_REQUEST)
    if not isinstance(message["method"], str):
        return Faulty(INVALID_REQUEST)
    if call_id is None:
        return Ignored()
    return Answered(plain(call_id)) if has_id else Faulty(INVALID_REQUEST)


def expect_of_agent(line: bytes) -> Expectation:
    """Return what an ACP agent answers to a line (acp spec 5.1)."""
    if not line.strip():
        return Ignored()
    try:
        value = read_json(line)
    except ValueError:
        return Faulty(PARSE_ERROR)
    if not isinstance(value, dict):
        return Faulty(INVALID_REQUEST)
    message = cast("Json", value)
    call_id = message.get("id")
    if "method" not in message and "id" in message and ("result" in message or "error" in message):
        return Ignored()
    if not (call_id is None or isinstance(call_id, str) or _is_number(call_id)):
        return Faulty(INVALID_REQUEST)
    if not isinstance(message.get("method"), str):
        return Faulty(INVALID_REQUEST, plain(call_id))
    return Answered(plain(call_id)) if "id" in message else Ignored()


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(cast("float", value)) != float("inf")


def key(call_id: object) -> str:
    """Return an id with its type, so that 1, "1" and true differ."""
    return json.dumps(call_id)


@dataclass
class Ledger:
    """Compares the answers that came with those that are due."""

    expect: Expect
    due: Counter[str] = field(default_factory=Counter[str])
    faults: Counter[int] = field(default_factory=Counter[int])
    spare_faults: int = 0
    came: Counter[str] = field(default_factory=Counter[str])
    came_faults: Counter[int] = field(default_factory=Counter[int])
    codes: Counter[int] = field(default_factory=Counter[int])
    seen: Counter[str] = field(default_factory=Counter[str])
    """How often the other side sent each type of event, request or update."""
    lines: int = 0
    sent: list[bytes] = field(default_factory=list[bytes])
    _rest: bytes = b""
    _is_first: bool = True

    def send(self, data: bytes) -> None:
        """Note bytes that were sent."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._note_sent(line)

    def end(self) -> None:
        """Note the end of the input."""
        if self._rest:
            self._note_sent(self._rest)
        self._rest = b""

    def _note_sent(self, line: bytes) -> None:
        if self._is_first:
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._is_first = False
        self.lines += 1
        self.sent.append(line)
        match self.expect(line):
            case Answered(call_id):
                self.due[key(call_id)] += 1
            case Faulty(code, None):
                self.faults[code] += 1
            case Faulty(_, call_id):
                self.due[key(call_id)] += 1
            case Ignored(may_fail):
                self.spare_faults += may_fail

    def receive(self, message: Json) -> None:
        """Note a message of the other side. An answer must have one of result and error, and a code that is known."""
        if "method" in message:
            params = message["params"]
            kind: str = params["update"]["sessionUpdate"] if "update" in params else params.get("type", "")
            self.seen[kind or message["method"]] += 1
            return
        assert ("result" in message) != ("error" in message), message
        if "error" in message:
            code: int = message["error"]["code"]
            self.codes[code] += 1
            assert "Traceback" not in json.dumps(message), message
            assert "errorId" not in (message["error"].get("data") or {}), message  # a mistake of ours
            if message["id"] is None and not self._is_null_due(code):
                self.came_faults[code] += 1
                return
        self.came[key(message["id"])] += 1

    def _is_null_due(self, code: int) -> bool:
        """Whether this error answers a request with the id null, which only ACP has."""
        return self.came["null"] < self.due["null"] and self.came_faults[code] >= self.faults[code]

    @property
    def open_ids(self) -> Counter[str]:
        """The ids of requests that have no answer yet."""
        return self.due - self.came

    def add(self, other: Ledger) -> None:
        """Add what another ledger counted, which has been checked."""
        self.lines += other.lines
        self.codes += other.codes
        self.seen += other.seen

    def check(self) -> None:
        """Assert that everything was answered, once, and nothing else."""
        assert self.open_ids == Counter(), self._context(f"unanswered: {self.open_ids}")
        assert self.came - self.due == Counter(), self._context(f"answered too often: {self.came - self.due}")
        surplus = self.came_faults - self.faults
        assert self.faults - self.came_faults == Counter(), self._context(f"{self.faults} but {self.came_faults}")
        assert sum(surplus.values()) <= self.spare_faults, self._context(f"{self.faults} but {self.came_faults}")
        assert set(surplus) <= {INVALID_REQUEST}

    def _context(self, text: str) -> str:
        return text + "\nafter " + "\n      ".join(repr(line[:300]) for line in self.sent[-80:])
