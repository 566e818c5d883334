"""A child process of the tests: runs the program as it is and says on stderr which modules were loaded, as JSON.

`python loaded.py ARGUMENT…` runs the command line to its end. With `--wire` or `acp` among the arguments the client is
a thread of this process: it shakes hands, and what is loaded then is what counts. What worker threads import ahead for
the first prompt is left out: it starts when the answer is out.
"""

from __future__ import annotations

import json
import os
import sys
import threading

_HANDSHAKE = b'{"jsonrpc":"2.0","id":"1","method":"initialize","params":{"protocol_version":"1.10"}}\n'


class _Watch:
    """Notes which modules other threads than the first one look for. Finds none itself."""

    def __init__(self) -> None:
        self.elsewhere: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.elsewhere.add(name)


def _report(watch: _Watch) -> None:
    names = sorted(set(sys.modules) - watch.elsewhere)
    os.write(_stderr, json.dumps(names).encode())


def _shake_hands(write_fd: int, read_fd: int, watch: _Watch) -> None:
    os.write(write_fd, _HANDSHAKE)
    answer = b""
    while not answer.endswith(b"\n"):
        answer += os.read(read_fd, 65_536)
    _report(watch)
    os._exit(0 if b'"result"' in answer else 1)


def _run() -> None:
    from kimi.interfaces.main import main

    sys.exit(main())


_stderr = os.dup(2)
_watch = _Watch()
sys.meta_path.insert(0, _watch)
if {"--wire", "acp"} & set(sys.argv):
    (_stdin, _to_stdin), (_from_stdout, _stdout) = os.pipe(), os.pipe()
    os.dup2(_stdin, 0)
    os.dup2(_stdout, 1)
    threading.Thread(target=_shake_hands, args=(_to_stdin, _from_stdout, _watch), daemon=True).start()
    _run()
else:
    try:
        _run()
    finally:
        _report(_watch)
