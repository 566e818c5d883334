"""`kimi demo` as a user sees it, and the examples of the documentation as a reader would run them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest

from kimi.application.agents.builtin_agents import DEFAULT_TOOLS
from kimi.interfaces.bootstrap.containers import SessionContainer
from kimi.interfaces.demo.client import DemoFailed, Json, WireClient
from kimi.interfaces.demo.screen import DemoScreen, create_screen
from tests.support.program.wire_process import Place, eventually

ROOT = Path(__file__).resolve().parents[2]
DEMO = (sys.executable, "-m", "kimi", "demo")


class Theatre:
    """A place to run the demo in: its own temporary directory, and a mark on every process that it starts."""

    def __init__(self, root: Path) -> None:
        self.mark = f"DEMO_MARK={uuid.uuid4()}"
        self.temporary = root / "tmp"
        self.home = root / "home"
        for path in (self.temporary, self.home):
            path.mkdir()

    @property
    def environ(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        kept = {key: text for key, text in os.environ.items() if key not in ("KIMI_SHARE_DIR", "NO_COLOR")}
        mine = {name: value, "TMPDIR": str(self.temporary), "HOME": str(self.home), "TERM": "xterm"}
        return kept | mine

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DEMO, *options], env=self.environ, capture_output=True, encoding="utf-8", timeout=50, check=False
        )

    def left(self) -> list[str]:
        """Files that are still there and processes that still run."""
        files = [str(path) for place in (self.temporary, self.home) for path in place.rglob("*")]
        return files + [str(pid) for pid in processes(self.mark)]


def processes(mark: str) -> list[int]:
    """The processes whose environment holds `mark`; none where the system does not tell."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:  # gone by now, or somebody else's
            continue
    return found


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


def in_order(text: str, wanted: Sequence[str]) -> bool:
    """Do these texts occur one after the other?"""
    return re.search(".*".join(map(re.escape, wanted)), text, re.DOTALL) is not None


STORY = (
    "$ kimi --wire\n",
    "our own tool build_status was accepted",
    "you: The greeting has a typo.",
    "thinking: A typo in the greeting.",
    "kimi: I will read the file first.",
    "calls ReadFile",
    "calls StrReplaceFile",
    "asks you: Edit file ",
    '-print(f"Helo, {name}!")',
    '+print(f"Hello, {name}!")',
    "you: yes, go ahead",
    "asks you: Run command `git push --force origin main`?",
    "you: no - Not before a review, please.",
    "no result: Rejected: Not before a review, please.",
    "your own tool build_status is asked about 'main'",
    "it answers: Build 128",
    "kimi: The greeting is fixed",
    "greeting.py on disk:",
    'print(f"Hello, {name}!")',
    "To resume this session: kimi -r ",
    "$ kimi --wire --session ",
    "you: Welcome back!",
    "kimi: We corrected the greeting",
    "has grown to",
    "What next?",
    "config.toml",
)


def test_demo_prints_its_scenes_and_removes_its_files(theatre: Theatre) -> None:
    outcome = theatre.run()
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert in_order(outcome.stdout, STORY), outcome.stdout
    assert "\x1b" not in outcome.stdout
    assert theatre.left() == []


def traced(output: str, arrow: str) -> list[Json]:
    return [json.loads(line.removeprefix(arrow)) for line in output.splitlines() if line.startswith(arrow)]


def test_the_trace_shows_both_directions_as_json(theatre: Theatre) -> None:
    outcome = theatre.run("--trace")
    assert outcome.returncode == 0
    sent, received = traced(outcome.stdout, "--> "), traced(outcome.stdout, "<-- ")
    assert [message["method"] for message in sent if "method" in message] == ["initialize", "prompt"] * 2
    asked = [message for message in received if message.get("method") == "request"]
    assert [message["params"]["type"] for message in asked] == ["ApprovalRequest", "ApprovalRequest", "ToolCallRequest"]
    answered = [message["id"] for message in sent if "result" in message]
    assert answered == [message["id"] for message in asked]
    assert [message["result"] for message in received if message.get("id") == "2"] == [{"status": "finished"}] * 2
    assert {message["jsonrpc"] for message in sent + received} == {"2.0"}
    assert theatre.left() == []


@contextmanager
def on_a_terminal(theatre: Theatre, *options: str, **environ: str) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    """The demo with a terminal as its output; gives the process and our end of the terminal."""
    ours, theirs = os.openpty()
    process = subprocess.Popen([*DEMO, *options], env=theatre.environ | environ, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What is shown until `wanted` appears, or to the end."""
    shown = b""
    while wanted is None or wanted not in shown:
        try:
            block = os.read(terminal, 4096)
        except OSError:  # how a terminal says that nobody writes to it any more
            break
        if not block:
            break
        shown += block
    return shown


def test_terminal_output_is_coloured_unless_disabled(theatre: Theatre) -> None:
    for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        with on_a_terminal(theatre, "--fast", **environ) as (process, terminal):
            shown = read_until(terminal, None)
            assert process.wait(20) == 0
        assert b"What next?" in shown
        assert (b"\x1b[" in shown) is coloured


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_demo_leaves_no_files_or_processes(theatre: Theatre, number: signal.Signals) -> None:
    with on_a_terminal(theatre) as (process, terminal):
        read_until(terminal, b"thinking: ")
        assert len(processes(theatre.mark)) == 2
        process.send_signal(number)
        shown = read_until(terminal, None)
        assert process.wait(20) == 128 + number
    assert b"The demo was stopped" in shown
    assert eventually(lambda: theatre.left() == [])


def test_a_failure_is_one_sentence(theatre: Theatre) -> None:
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *DEMO]  # no file can be written
    outcome = subprocess.run(limited, env=theatre.environ, capture_output=True, encoding="utf-8", check=False)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("The demo cannot run on this machine: ")
    assert outcome.stderr.count("\n") == 1
    assert theatre.left() == []


def test_closed_stdout_ends_the_demo(theatre: Theatre) -> None:
    with subprocess.Popen(DEMO, env=theatre.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 1
    assert theatre.left() == []


def silent(direction: str, line: str) -> None:
    """A trace that nobody watches."""


def refuse(kind: str, payload: Json) -> Json | None:
    """Takes nothing and answers nothing."""
    return None


def test_demo_reports_why_the_server_ended(place: Place) -> None:
    with (
        pytest.raises(DemoFailed, match=r"ended early with status 2: .*Cannot combine --print, --wire"),
        WireClient(["--print"], place.work, place.full_environ(), place.root / "stderr", silent) as client,
    ):
        client.call("initialize", {"protocol_version": "1.10"}, refuse)


def test_demo_reports_a_refused_request(place: Place) -> None:
    with (
        pytest.raises(DemoFailed, match="refused 'prompt': LLM is not set"),
        WireClient([], place.work, place.full_environ(), place.root / "stderr", silent) as client,
    ):
        client.call("prompt", {"user_input": "hi"}, refuse)


def test_output_encoding_escapes_unsupported_characters(tmp_path: Path) -> None:
    with (tmp_path / "shown").open("w", encoding="ascii") as output:
        screen = create_screen(output, {})
        screen.write_piece("caf\u00e9", "plain", "> ")
        screen.write_line("next")
    assert (tmp_path / "shown").read_text() == "> caf\\xe9\nnext\n"


def test_every_line_of_a_block_is_styled_separately() -> None:
    output = StringIO()
    DemoScreen(output, colour=True).write_line("a\n\nb", "added")
    assert output.getvalue() == "\x1b[32ma\x1b[0m\n\n\x1b[32mb\x1b[0m\n"


# --- what the documentation says --------------------------------------------------------------------------


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def example(document: str, containing: str) -> str:
    """The Python block of a document that holds this text."""
    blocks = re.findall(r"```python\n(.*?)```", text_of(document), re.DOTALL)
    return next(block for block in blocks if containing in block)


def run_example(place: Place, code: str) -> subprocess.CompletedProcess[str]:
    """Run an example in the work dir, with the command `kimi` on the path."""
    environ = place.full_environ()
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ.get('PATH', '')}"
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, cwd=place.work, env=environ, capture_output=True, encoding="utf-8", timeout=30, check=False
    )


WRITE = "tool_call: " + json.dumps(
    {"id": "c1", "name": "WriteFile", "arguments": json.dumps({"path": "hello.txt", "content": "Hello!\n"})}
)


def test_the_client_of_the_readme_works(place: Place) -> None:
    place.script(f"text: One file.\n{WRITE}", "text: Written.")
    code = example("README.md", "subprocess")
    assert len(code.splitlines()) <= 24
    outcome = run_example(place, code)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.startswith("\nTo resume this session: ")
    assert outcome.stdout == "One file.Written.\n{'status': 'finished'}\n"
    assert (place.work / "hello.txt").read_text() == "Hello!\n"


def test_the_embedding_example_works(place: Place) -> None:
    code = example("docs/embedding.md", "run_turn")
    outcome = run_example(place, code)
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stderr
    assert outcome.stdout == "Hello from my own model.\nfinished\n"
    swap = example("docs/architecture.md", "override")
    assert swap in code, "the short example must be a piece of the one that is run here"


def test_the_example_of_a_tool_works(place: Place) -> None:
    (place.work / "agent.yaml").write_text('agent: {extend: default, tools: ["ReadFile", "my_pkg:Lookup"]}')
    code = example("docs/embedding.md", "class Lookup")
    outcome = run_example(place, code)
    assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stderr
    assert outcome.stdout == "ReadFile Lookup\n"
    call = "\nasync def call():\n    async with Lookup().prepare({'word': 'wire'}, None) as call:\n        "
    run = f"{code}{call}print((await call.run()).output)\n\nanyio.run(call)\n"
    assert run_example(place, run).stdout.endswith("\nJSON-RPC, one message per line\n")


def test_the_example_that_serves_the_protocol_works(place: Place) -> None:
    place.script("text: Over a socket.")
    code = example("docs/embedding.md", "serve_wire(")
    command = [sys.executable, "-W", "error", "-c", code]
    with subprocess.Popen(command, cwd=place.work, env=place.full_environ(), stderr=subprocess.PIPE) as server:
        try:
            path = os.path.relpath(place.work / "kimi.sock")  # an address of a socket must be short
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(20)
                assert eventually(lambda: client.connect_ex(path) == 0)
                client.sendall(b'{"jsonrpc": "2.0", "id": "1", "method": "prompt", "params": {"user_input": "hi"}}\n')
                with client.makefile(encoding="utf-8") as lines:
                    messages: list[Json] = list(until_answered(lines, "1"))
            assert messages[-1]["result"] == {"status": "finished"}
            assert "Over a socket." in json.dumps(messages)
            assert eventually(lambda: bool(place.session_dirs()))
            assert server.poll() is None, "a client that leaves ends its session, not the server"
        finally:
            server.kill()


def until_answered(lines: Iterable[str], call_id: str) -> Iterator[Json]:
    """Messages, up to the response of this call."""
    for line in lines:
        message: Json = json.loads(line)
        yield message
        if message.get("id") == call_id:
            return


METHODS = ("initialize", "prompt", "steer", "cancel", "replay", "set_plan_mode")


def test_the_documented_methods_are_those_that_exist(place: Place) -> None:
    documented = re.findall(r"^\| `(\w+)` \|", text_of("docs/wire.md").partition("## Events")[0], re.MULTILINE)
    with place.wire() as kimi:
        answers = {method: kimi.response(kimi.call(method, {"protocol_version": 1})) for method in METHODS}
    unknown = [method for method in METHODS if answers[method].get("error", {}).get("code") == -32601]
    assert sorted(documented) == sorted(set(METHODS) - set(unknown)), "docs/wire.md"
    assert all(f"`{method}`" in text_of("README.md") for method in unknown), "README.md, what is missing"


def test_the_documented_tools_are_those_of_the_agent() -> None:
    table = text_of("docs/tools.md").partition("##")[0]
    tools = [tool_id.rpartition(":")[2] for tool_id in DEFAULT_TOOLS if tool_id in SessionContainer.tools.providers]
    assert [name for name in tools if f"`{name}`" not in table] == []


def test_no_link_of_the_documentation_is_dead() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + list(
        (ROOT / "docs").rglob("*.md")
    )
    for page in pages:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: {target}"


def test_the_pinned_requirements_cover_the_dependencies() -> None:
    project: Json = tomllib.loads(text_of("pyproject.toml"))["project"]
    pinned = re.findall(r"^([a-z0-9-]+)==", text_of("requirements.lock"), re.MULTILINE)
    named = [re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-") for line in project["dependencies"]]
    assert [name for name in named if name not in pinned] == [], "see CONTRIBUTING.md for how to pin"
    assert "://" not in text_of("requirements.lock")
