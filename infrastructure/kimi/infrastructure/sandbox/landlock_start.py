"""A program that confines itself by Landlock and seccomp, and then becomes the command (runtime spec 7.10).

An interpreter that loads nothing else imports it: standard library only, and little of it, because every confined
command pays for it. Arguments: `mode=`, `network=`, `temp=`, then a rule each as `write=PATH`,
`read=PATH`, `hidden=PATH`, parents first; `--`; the command. Nothing is ever run without its confinement.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

FAILED_STATUS = 126
"""The exit status when the command cannot be confined; the reason is on standard error."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_WRITE = sum(1 << bit for bit in (1, *range(4, 13))) & ~_MAKE_DEVICES | _REFER | _TRUNCATE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP = 1 << 0 | 1 << 1
_SCOPES = 1 << 0 | 1 << 1
"""Abstract UNIX sockets and signals."""

_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))
_SHARED_MEMORY = "/dev/shm"

_CLEAR_AMBIENT, _DROP_BOUNDING, _NO_NEW_PRIVILEGES, _SET_SECCOMP, _PARENT_DEATH_SIGNAL = 47, 24, 38, 22, 1
_KILL = 9

MACHINES = {
    # name: audit architecture, socket, truncate, and what changes modes, owners, times and extended attributes
    "x86_64": (
        *(0xC000003E, 41, 76),
        (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466, 469),
    ),
    "aarch64": (*(0xC00000B7, 198, 45), (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, 452, 463, 466, 469)),
}
_IO_URING_SETUP = 425
"""With it, sockets and files are opened past the filter."""

_LOAD, _JUMP_EQUAL, _JUMP_NOT_BELOW, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1
_X32_CALLS = 0x40000000


class Unconfined(Exception):
    """The command cannot be confined."""


def main(arguments: list[str]) -> None:
    """Confine this process and become the command of `arguments`; exit if that is not possible."""
    split = arguments.index("--")
    options = [argument.partition("=") for argument in arguments[:split]]
    command = arguments[split + 1 :]
    single = {name: value for name, _, value in options}
    rules = [(name, value) for name, _, value in options if name in ("write", "read", "hidden")]
    try:
        confine(rules, read_only=single["mode"] == "read-only", network=single["network"] == "on")
        os.environ["TMPDIR"] = single["temp"]
        os.execvp(command[0], command)
    except (Unconfined, OSError) as error:
        os.write(2, f"sandbox: the command was not run: {error}\n".encode("utf-8", "surrogateescape"))
        os._exit(FAILED_STATUS)


def find_abi(libc: ctypes.CDLL) -> int:
    """Return the version of Landlock that the kernel has; 0 or less for none."""
    return int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def confine(rules: list[tuple[str, str]], *, read_only: bool, network: bool) -> None:
    """Confine this process and everything that it starts. Raises Unconfined."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = find_abi(libc)
    if abi < 1:
        raise Unconfined("the kernel has no Landlock")
    machine = MACHINES.get(os.uname().machine)
    if machine is None:
        raise Unconfined("system calls are not known for this machine")
    # The caller's own end is to be the command's, too.
    libc.prctl(_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)
    ruleset = _create_ruleset(libc, abi, network)
    _grant_paths(libc, ruleset, abi, rules, read_only)
    _drop_privileges(libc)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
        raise Unconfined(f"Landlock failed: {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)
    filter_calls(libc, machine, _list_refused_calls(machine, abi, read_only, network))


# --- paths --------------------------------------------------------------------------------------------------------


def _create_ruleset(libc: ctypes.CDLL, abi: int, network: bool) -> int:
    files = (1 << 13) - 1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    files |= _IOCTL_DEV if abi >= 5 else 0
    sizes = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = (ctypes.c_uint64 * 3)(files, 0 if network else _TCP, _SCOPES)
    ruleset = int(libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(sizes), 0))
    if ruleset < 0:
        raise Unconfined(f"Landlock failed: {os.strerror(ctypes.get_errno())}")
    return ruleset


def _grant_paths(libc: ctypes.CDLL, ruleset: int, abi: int, rules: list[tuple[str, str]], read_only: bool) -> None:
    """Grant what the rules allow. Landlock can only add rights: what is kept back is left out, entry by entry."""
    known = (1 << 13) - 1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    known |= _IOCTL_DEV if abi >= 5 else 0

    def grant(path: str, rights: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        allowed = (rights & known).to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        libc.syscall(_ADD_RULE, ruleset, 1, allowed, 0)
        os.close(descriptor)

    def grant_around(path: str, rights: int, kept: list[str]) -> None:
        inside = [other for other in kept if f"{other}/".startswith(path.rstrip("/") + "/")]
        if not inside:
            grant(path, rights)
        elif path not in inside:
            for entry in _list_entries(path):
                grant_around(entry, rights, inside)

    grant("/", _EXECUTE | _READ_DIR)  # of hidden directories the names can be seen
    hidden = [path for access, path in rules if access == "hidden"]
    for path in ("/", *(path for access, path in rules if access != "hidden")):
        grant_around(path, _READ_FILE | _READ_DIR, [*hidden, "/dev"])
    kept = [path for access, path in rules if access != "write"]
    for path in (path for access, path in rules if access == "write"):
        grant_around(path, _WRITE | _READ_FILE, kept)
    for path in _DEVICES:
        grant(path, _READ_FILE | _WRITE_FILE | _IOCTL_DEV)
    grant(_SHARED_MEMORY, _READ_FILE | (0 if read_only else _WRITE))


def _list_entries(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if not entry.is_symlink()]
    except OSError:
        return []


# --- privileges and calls -----------------------------------------------------------------------------------------


def _drop_privileges(libc: ctypes.CDLL) -> None:
    """Give up what root may do beyond its own files, and what set-user-id programs would give."""
    capability = 0
    while libc.prctl(_DROP_BOUNDING, capability, 0, 0, 0) == 0:
        capability += 1
    libc.prctl(_CLEAR_AMBIENT, 4, 0, 0, 0)
    header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(ctypes.byref(header), ctypes.byref(nothing)) != 0:
        raise Unconfined(f"privileges cannot be dropped: {os.strerror(ctypes.get_errno())}")
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise Unconfined(f"privileges cannot be refused: {os.strerror(ctypes.get_errno())}")


def _list_refused_calls(
    machine: tuple[int, int, int, tuple[int, ...]], abi: int, read_only: bool, network: bool
) -> list[int]:
    _, socket, truncate, changes = machine
    return [
        _IO_URING_SETUP,
        *([] if network else [socket]),
        *([truncate] if abi < 3 else []),
        *(changes if read_only else ()),
    ]


def filter_calls(libc: ctypes.CDLL, machine: tuple[int, int, int, tuple[int, ...]], refused: list[int]) -> None:
    """Refuse these calls from now on, and all of the machine's other call tables. Raises Unconfined."""
    code = [_instruct(_LOAD, 4), _instruct(_JUMP_EQUAL, machine[0], 1, 0), _instruct(_RETURN, _REFUSE)]
    code += [_instruct(_LOAD, 0)]
    for number in refused:
        code += [_instruct(_JUMP_EQUAL, number, 0, 1), _instruct(_RETURN, _REFUSE)]
    if os.uname().machine == "x86_64":
        code += [_instruct(_JUMP_NOT_BELOW, _X32_CALLS, 0, 1), _instruct(_RETURN, _REFUSE)]
    code += [_instruct(_RETURN, _ALLOW)]
    text = ctypes.create_string_buffer(b"".join(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

    program = Program(len(code), ctypes.addressof(text))
    if libc.prctl(_SET_SECCOMP, 2, ctypes.byref(program), 0, 0) != 0:
        raise Unconfined(f"seccomp failed: {os.strerror(ctypes.get_errno())}")


def _instruct(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return code.to_bytes(2, sys.byteorder) + bytes((if_true, if_false)) + value.to_bytes(4, sys.byteorder)
