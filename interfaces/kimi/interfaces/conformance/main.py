"""`kimi conformance`: from its options to the exit status."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kimi.interfaces.conformance.connection import kill, kill_leftovers, run_with_files, start_process, stdio_server
from kimi.interfaces.conformance.home import Home
from kimi.interfaces.conformance.items import list_items
from kimi.interfaces.conformance.ledger import Mismatch
from kimi.interfaces.conformance.model_server import ModelServer
from kimi.interfaces.conformance.report import format_json, format_junit, format_text
from kimi.interfaces.conformance.run import SuiteReport, run_suite
from kimi.interfaces.conformance.scenario import Protocol, Target

_READY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    command: tuple[str, ...]
    protocol: Protocol
    url: str | None = None
    token: str | None = None
    model_port: int = 0
    only: tuple[str, ...] = ()
    timeout_s: float = 15.0
    junit: Path | None = None
    json: Path | None = None
    verbose: bool = False
    quiet: bool = False


class WrongRequest(ValueError):
    """The options cannot be followed; the message says what to do."""


def run_conformance(request: Request) -> int:
    """Run the suite and print the report; return 0 if all judged items pass, 1 if one fails, 2 for wrong options."""
    try:
        _check(request)
        request = replace(request, command=_find_program(request.command))
        report = asyncio.run(_run(request))
        if request.junit is not None:
            request.junit.write_bytes(format_junit(report))
        if request.json is not None:
            request.json.write_bytes(format_json(report))
    except (WrongRequest, Mismatch, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("The run was interrupted; there is no report.\n")
        return 130
    sys.stdout.write(format_text(report, verbose=request.verbose))
    return 1 if report.count("failed") else 0


def _find_program(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command with the path of its program: the server works in another directory."""
    if not command:
        return ()
    return (os.path.abspath(shutil.which(command[0]) or command[0]), *command[1:])


def _check(request: Request) -> None:
    if not request.command and request.url is None:
        raise WrongRequest("Name the server: `kimi conformance -- COMMAND...`, or give --url.")
    if request.url is not None:
        _find_address(request.url)
    elif request.token is not None or request.model_port:
        raise WrongRequest("--token and --model-port are for a server at --url.")
    for path in (request.junit, request.json):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise WrongRequest(f"The report cannot be written to {path}: name a file in a directory that exists.")
    if not 0 <= request.model_port <= 65535:
        raise WrongRequest(f"--model-port must be from 0 to 65535, not {request.model_port}.")
    if request.url is not None and request.protocol == "acp":
        raise WrongRequest("Editors talk over stdio: give a command instead of --url.")
    if request.command and shutil.which(request.command[0]) is None:
        raise WrongRequest(f"There is no program {request.command[0]!r}.")
    known = {item.id for item in list_items(request.protocol)}
    if unknown := sorted(set(request.only) - known):
        raise WrongRequest(f"There is no item {', '.join(unknown)} in the suite {request.protocol!r}.")


def _find_address(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL. Raises WrongRequest if it is none of a WebSocket."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongRequest(f"--url {url!r} is no URL: {error}.") from None
    if parts.scheme not in ("ws", "wss") or not host:
        raise WrongRequest(f"--url must begin with ws:// or wss:// and name a host, not {url!r}.")
    return host, port or (443 if parts.scheme == "wss" else 80)


async def _run(request: Request) -> SuiteReport:
    def tell(line: str) -> None:
        if not request.quiet:
            sys.stderr.write(f"{line}\n")

    if request.url is None:
        target = Target(
            request.protocol,
            stdio_server(request.command),
            timeout_s=request.timeout_s,
            run_with_files=run_with_files(request.command),
        )
        return await run_suite(target, only=request.only, tell=tell)
    from kimi.interfaces.conformance.websocket import websocket_server

    model = ModelServer()
    try:
        await model.start(request.model_port)
    except OSError as error:
        raise WrongRequest(f"The kit's model cannot listen at port {request.model_port}: {error.strerror}.") from None
    try:
        async with _running(request, model) as directory:
            target = Target(
                request.protocol,
                websocket_server(request.url, request.token, request.timeout_s),
                has_process=False,
                timeout_s=request.timeout_s,
                directory=directory,
            )
            return await run_suite(target, only=request.only, model=model, tell=tell)
    finally:
        await model.stop()


@contextlib.asynccontextmanager
async def _running(request: Request, model: ModelServer) -> AsyncGenerator[Path | None, None]:
    """Run the server behind the URL, if there is a command for it, in a home with the kit's model.

    Yields its work directory: a server may refuse sessions of directories elsewhere.
    """
    if not request.command:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kimi-conformance-", ignore_cleanup_errors=True) as root:
        home = Home(Path(root).resolve(), model.base_url)
        home.prepare()
        none = asyncio.subprocess.DEVNULL
        process = await start_process(request.command, (home.work, home.full_environ()), none, none, None)
        try:
            await _wait_until_ready(request, process)
            yield home.work
        finally:
            await _stop(process)
            await kill_leftovers(home.root)


async def _wait_until_ready(request: Request, process: asyncio.subprocess.Process) -> None:
    """Wait until the port of the URL can be connected to. Raises WrongRequest when the server ends or takes long."""
    host, port = _find_address(request.url or "")
    for _ in range(int(_READY_S / 0.1)):
        if process.returncode is not None:
            raise WrongRequest(f"The server ended with status {process.returncode} before it listened.")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise WrongRequest(f"The server does not listen at {request.url} after {_READY_S:g} s.")


async def _stop(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, TimeoutError):
        process.terminate()
        await asyncio.wait_for(process.wait(), 5)
    await kill(process)
