"""A PostgreSQL server in a temporary directory, if the machine has the programs, and a schema for each test."""

from __future__ import annotations

import atexit
import glob
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache

import psycopg
import pytest

_schemas = itertools.count(1)


def open_schema() -> str:
    """Return the connection text of an empty schema. Skips the test where there is no PostgreSQL."""
    directory = _start_server()
    if directory is None:
        pytest.skip("no PostgreSQL that can be started: the programs initdb and postgres are needed, and not as root")
    name = f"test_{os.getpid()}_{next(_schemas)}"
    conninfo = f"host={directory} user=kimi dbname=postgres"
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")  # pyright: ignore[reportArgumentType, reportCallIssue]
    return f"{conninfo} options='-c search_path={name}'"


@cache
def _start_server() -> str | None:
    """Start the server of this process; return the directory of its socket, None without the programs."""
    programs = _find_programs()
    if programs is None:
        return None
    directory = tempfile.mkdtemp(prefix="kimi-pg-")  # short: a socket's path may have 107 characters
    user = None
    if os.getuid() == 0:  # the server refuses to run as root; its package has made this user
        user = "postgres"
        shutil.chown(directory, user, user)
    data = os.path.join(directory, "data")
    options = ["-D", data, "-U", "kimi", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale"]
    initdb = [os.path.join(programs, "initdb"), *options]
    subprocess.run(initdb, cwd=directory, user=user, stdout=subprocess.DEVNULL, check=True)
    server = subprocess.Popen(
        [os.path.join(programs, "postgres"), "-D", data, "-k", directory, "-c", "listen_addresses=", "-F"],
        cwd=directory,
        user=user,
        stderr=subprocess.DEVNULL,
    )
    atexit.register(_stop_server, server, directory)
    _wait_for_server(directory)
    return directory


def _find_programs() -> str | None:
    if sys.platform == "win32" or (os.getuid() == 0 and not _has_user("postgres")):
        return None
    found = shutil.which("initdb")
    folders = [os.path.dirname(found)] if found else sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "postgres"))), None)


def _has_user(name: str) -> bool:
    import pwd

    return name in (entry.pw_name for entry in pwd.getpwall())


def _wait_for_server(directory: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(f"host={directory} user=kimi dbname=postgres").close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _stop_server(server: subprocess.Popen[bytes], directory: str) -> None:
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    shutil.rmtree(directory, ignore_errors=True)
