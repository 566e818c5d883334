"""`kimi demo`: a conversation with real `kimi --wire` processes on the scripted model (runtime spec 1.6).

Everything happens in one temporary directory. It is removed at the end, and every process has ended then, whether the
demo succeeded, failed, or was interrupted. Nothing is read from or written to the user's own share directory.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from kimi.application.settings.flags import share_directory
from kimi.interfaces.demo.client import DemoFailed, Direction, Json, WireClient
from kimi.interfaces.demo.screen import DemoScreen, create_screen, open_stdout
from kimi.interfaces.demo.story import (
    EXTERNAL_TOOL,
    FILE_NAME,
    FIRST_PROMPT,
    SECOND_PROMPT,
    TEXT_AFTER,
    scripts_path,
    write_demo_files,
)
from kimi.interfaces.demo.view import DemoView, check
from kimi.interfaces.process.streams import RESUME_HINT, write_stderr
from kimi.interfaces.version import __version__

_ARROWS: Final[Mapping[Direction, str]] = {"out": "--> ", "in": "<-- "}
_SIGNALS: Final = [signal.SIGINT, signal.SIGTERM] + ([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])


def run_demo(trace: bool, fast: bool) -> int:
    """Play the demo on stdout; return the exit status.

    `trace` shows every line of the protocol as well, `fast` leaves out the pauses that a terminal gets. A failure is
    one sentence on stderr and status 1; after a signal the status is 128 and its number.
    """
    screen = create_screen(open_stdout(), os.environ)
    screen.paced = screen.paced and not fast
    with _catch_signals() as received:
        try:
            with tempfile.TemporaryDirectory(prefix="kimi-demo-") as directory:
                _play_demo(_DemoStage(Path(directory).resolve(), screen, trace))
            screen.write_line(
                f"\nDone: both processes have ended, and their directory is removed.\n{_format_next_steps()}"
            )
        except KeyboardInterrupt:
            write_stderr("\nThe demo was stopped; nothing of it is left.\n")
            return 128 + (received[0] if received else signal.SIGINT)
        except BrokenPipeError:
            _discard_stdout()
            return 1
        except DemoFailed as error:
            write_stderr(f"{error}\n")
            return 1
        except OSError as error:
            write_stderr(f"The demo cannot run on this machine: {error}\n")
            return 1
    return 0


@contextmanager
def _catch_signals() -> Generator[list[int]]:
    """Turn the first signal into KeyboardInterrupt and ignore later ones during clean-up; yield the received ones."""
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may set handlers
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield received
    finally:
        for number in taken:
            signal.signal(number, before[number])


def _discard_stdout() -> None:
    """Discard the buffered output: its reader has gone, and the interpreter would report the error at exit."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)


# --- the play ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _DemoStage:
    """The directory of the demo, and the screen that shows it."""

    root: Path
    screen: DemoScreen
    trace: bool

    @property
    def edited_file(self) -> Path:
        return self.root / "work" / FILE_NAME

    def start_client(self, number: int, *options: str) -> WireClient:
        """Start the first or second process, with the scripts of its model."""
        self.screen.write_line(f"$ kimi --wire {' '.join(options)}".rstrip(), "strong")
        environ = {key: value for key, value in os.environ.items() if not key.startswith(("KIMI_", "OPENAI_"))}
        environ["KIMI_SHARE_DIR"] = str(self.root / "share")
        environ["KIMI_SCRIPTED_ECHO_SCRIPTS"] = str(scripts_path(self.root, number))
        return WireClient(options, self.root / "work", environ, self.root / f"stderr-{number}.txt", self._write_trace)

    def _write_trace(self, direction: Direction, line: str) -> None:
        if self.trace:
            self.screen.write_trace(_ARROWS[direction] + line)

    def count_records(self, session: str, name: str) -> int:
        """Return how many lines a file of the stored session has."""
        files = list((self.root / "share" / "sessions").glob(f"*/{session}/{name}"))
        check(len(files) == 1, f"the session has no {name}")
        return len(files[0].read_text(encoding="utf-8").splitlines())


def _play_demo(stage: _DemoStage) -> None:
    write_demo_files(stage.root)
    screen = stage.screen
    screen.write_line(
        "A conversation with a real `kimi --wire` process. The model is scripted: no account, no network.\n"
    )
    session = _run_first_process(stage)
    stored = stage.count_records(session, "context.jsonl")
    events = stage.count_records(session, "wire.jsonl")
    screen.write_line(f"\nThat process has ended. On disk: {stored} lines of context, {events} of events.", "faint")
    screen.write_line("A second process takes the session over.\n", "faint")
    _run_second_process(stage, session)
    grown = stage.count_records(session, "context.jsonl")
    check(grown > stored, "the second turn was not stored in the same session")
    screen.write_line(f"\nThe context of the same session has grown to {grown} lines.", "faint")


def _run_first_process(stage: _DemoStage) -> str:
    """Run a handshake and one prompt that shows every feature; return the id of the session for the next process."""
    screen = stage.screen
    with stage.start_client(1) as client:
        view = DemoView(screen)
        hello = _initialize_client(client, view, [EXTERNAL_TOOL])
        tools = hello.get("external_tools", {})
        check(tools.get("accepted") == [EXTERNAL_TOOL["name"]], "the client's tool was not accepted")
        screen.write_line(f"  our own tool {EXTERNAL_TOOL['name']} was accepted", "faint")
        _send_prompt(screen, client, view, FIRST_PROMPT)
        check("ApprovalRequest" in view.seen and "ToolCallRequest" in view.seen, "a question of the agent is missing")
        check(stage.edited_file.read_text(encoding="utf-8") == TEXT_AFTER, f"{FILE_NAME} was not changed")
        screen.write_line(f"\n{FILE_NAME} on disk:", "faint")
        screen.write_line("\n".join(f"    {line}" for line in TEXT_AFTER.splitlines()))
        screen.write_line("We close its input:", "faint")
        hint = client.finish()
    screen.write_line(f"  {hint.strip()}")
    _, found, session = hint.strip().rpartition(RESUME_HINT)
    check(bool(found), "the process did not say how to resume the session")
    return session


def _run_second_process(stage: _DemoStage, session: str) -> None:
    with stage.start_client(2, "--session", session) as client:
        view = DemoView(stage.screen)
        _initialize_client(client, view, [])
        _send_prompt(stage.screen, client, view, SECOND_PROMPT)
        client.finish()


def _initialize_client(client: WireClient, view: DemoView, tools: list[Json]) -> Json:
    params: Json = {"protocol_version": "1.10", "client": {"name": "kimi-demo", "version": __version__}}
    return client.call("initialize", params | ({"external_tools": tools} if tools else {}), view.handle_message)


def _send_prompt(screen: DemoScreen, client: WireClient, view: DemoView, text: str) -> None:
    screen.write_line(f"\n  you: {text}", "user")
    result = client.call("prompt", {"user_input": text}, view.handle_message)
    screen.end_line()
    check(result == {"status": "finished"}, f"the turn ended with {result}")
    screen.write_line(f"  (turn {result['status']})", "faint")


def _format_next_steps() -> str:
    config = os.path.join(share_directory(os.environ), "config.toml")
    return f"""
What next?
  1. Name a provider and a model in {config}:

       default_model = "main"          # above the first [section]
       [providers.mine]
       type = "openai_legacy"          # any OpenAI-compatible server; or "kimi"
       base_url = "https://HOST/v1"
       api_key = "YOUR KEY"
       [models.main]
       provider = "mine"
       model = "MODEL"
       max_context_size = 131072

     or set KIMI_BASE_URL, KIMI_API_KEY and KIMI_MODEL_NAME in the environment.
  2. Start `kimi --wire` from your program in the directory to work in, and speak JSON lines with it.
  3. See each of these lines: `kimi demo --trace`.
  4. Work with it yourself: `kimi` is the interactive shell."""
