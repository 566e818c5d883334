"""What the program and its helper say to each other. Standard library only, because the helper starts with it.

The program asks for a keeper on the socket that the helper and the next keeper read: a byte, with the descriptors
`(control, stdin, stdout, stderr)`. Everything else passes between the program and the keeper over the socket `control`:
one request, then wishes of the program and events of the keeper, which are lines of words.
"""

from __future__ import annotations

import marshal
import socket
import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

READY: Final = b"+"
"""What the helper says when it can be asked; its process id follows, in digits."""
NEW_KEEPER: Final = b"n"

KILL: Final = b"k"
"""A wish: end everything. The grace in milliseconds follows, packed as `NUMBER`."""
RELEASE: Final = b"r"
"""A wish: what the command has left behind may go on until the program ends."""

STARTED: Final = "started"
"""An event: the command runs; its process id and that of its keeper follow."""
REFUSED: Final = "refused"
"""An event: the command cannot be started; the error number follows, and 1 if the directory is the reason."""
ENDED: Final = "ended"
"""An event: the command has ended; its status follows, negative for a signal."""
GONE: Final = "gone"
"""An event: nothing of the command is left."""

_MOST_DESCRIPTORS: Final = 8

NUMBER: Final = struct.Struct("!I")

Request: TypeAlias = tuple[list[bytes], bytes, dict[bytes, bytes]]
"""The words of a command, its directory and its environment."""


def encode_request(words: Sequence[bytes], directory: bytes, environment: Mapping[bytes, bytes]) -> bytes:
    """Return the bytes of a request."""
    body = marshal.dumps((list(words), directory, dict(environment)))
    return NUMBER.pack(len(body)) + body


def read_request(control: socket.socket) -> Request | None:
    """Read a request, waiting for all of it; None if the program is gone."""
    if len(head := _read_exactly(control, NUMBER.size)) < NUMBER.size:
        return None
    (size,) = NUMBER.unpack(head)
    body = _read_exactly(control, size)
    return cast(Request, marshal.loads(body)) if len(body) == size else None


def receive_descriptors(program: socket.socket) -> list[int]:
    """Receive the descriptors of a request for a keeper, which commands do not inherit; none at the end.

    `socket.recv_fds` ignores the flag that is needed for that.
    """
    descriptors = array("i")
    space = socket.CMSG_SPACE(_MOST_DESCRIPTORS * descriptors.itemsize)
    _, messages, _, _ = program.recvmsg(len(NEW_KEEPER), space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return list(descriptors)


def _read_exactly(control: socket.socket, size: int) -> bytes:
    """Return the next `size` bytes; fewer at the end of the stream."""
    parts = bytearray()
    while len(parts) < size and (block := control.recv(size - len(parts))):
        parts += block
    return bytes(parts)


def encode_kill(grace_s: float) -> bytes:
    """Return the bytes of the wish to end everything."""
    return KILL + NUMBER.pack(round(grace_s * 1000))
