"""A network between a browser and a server that a test can cut: a TCP proxy on the loopback interface."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress


class Cuttable:
    """The proxy. While it is cut, nothing passes: connections are gone, and new ones end at once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._flows = _flowing()
        self._stalled: list[threading.Event] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """Where browsers connect to."""
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def cut(self) -> None:
        """Cut the network."""
        self._is_cut = True
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Hold back all that is sent from now on; nobody is told, connections stay open."""
        self._flows.clear()

    def stall_open_ones(self) -> None:
        """Hold back all that the connections of now send; new ones pass."""
        self._flows.clear()
        self._stalled.append(self._flows)
        self._flows = _flowing()

    def mend(self) -> None:
        """Let everything pass again, also what was held back."""
        self._is_cut = False
        for flows in (*self._stalled, self._flows):
            flows.set()

    def close(self) -> None:
        """End the proxy and what passes."""
        self.mend()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self._is_cut:
                    near.close()
                else:
                    threading.Thread(target=self._pass, args=(near,), daemon=True).start()

    def _pass(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._target))
        except OSError:  # the server has ended
            near.close()
            return
        with near, far:
            with self._lock:
                self._open |= {near, far}
            flows = self._flows
            back = threading.Thread(target=_pump, args=(far, near, flows), daemon=True)
            back.start()
            _pump(near, far, flows)
            back.join()
            with self._lock:
                self._open -= {near, far}


def _pump(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            flows.wait()
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        source.shutdown(socket.SHUT_RDWR)


def _flowing() -> threading.Event:
    flows = threading.Event()
    flows.set()
    return flows


@contextmanager
def cuttable(port: int) -> Generator[Cuttable, None, None]:
    """Run a proxy to this port while the context is open."""
    proxy = Cuttable(port)
    try:
        yield proxy
    finally:
        proxy.close()
