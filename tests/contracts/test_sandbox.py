"""What every sandbox keeps from a command, and what it leaves to it (runtime spec 7.10)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.program.processes import comes_true, is_alive
from tests.support.sandboxes import SECRET, SandboxPlace, find_named_mechanism, read_tree, run_bare, run_in

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="commands are confined on Linux only"),
]

MECHANISMS = ("bubblewrap", "landlock")
WAIT_S = 10.0


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that is visible in every sandbox: bubblewrap covers /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="kimi-test-") as directory:
        yield Path(directory).resolve()


@pytest.fixture(params=MECHANISMS)
def place(request: pytest.FixtureRequest, home: Path) -> Iterator[SandboxPlace]:
    name: str = request.param
    with SandboxPlace(home, find_named_mechanism(name)) as place:
        yield place


def python(program: str) -> str:
    """A command line that runs a program of Python, which must not hold an apostrophe."""
    return f"{os.path.realpath(sys.executable)} -I -S -c '{program}'"  # an environment may be where it is not seen


# --- what cannot be changed ---------------------------------------------------------------------------------------

OUTSIDE = {
    "overwrite": "echo x > ../other/notes.txt",
    "append": "echo x >> ../other/notes.txt",
    "create": "echo x > ../other/new.txt",
    "truncate": python('import os; os.truncate("../other/notes.txt", 0)'),
    "delete": "rm -f ../other/notes.txt",
    "directory": "mkdir ../other/new",
    "move out": "mv sub/a.txt ../other/",
    "move in": "mv ../other/notes.txt sub/",
    "move the root": "mv ../work ../moved",
    "link": "ln -s /etc ../other/link",
    "fifo": "mkfifo ../other/pipe",
    "hard link, then write": "ln ../other/notes.txt sub/n && echo x > sub/n",
    "through a link": "ln -s ../../other sub/o; echo x > sub/o/notes.txt",
    "through dots": "echo x > sub/../../other/notes.txt",
    "through the root of a process": "echo x > /proc/self/root$PWD/../other/notes.txt",
    "through the directory of a process": "echo x > /proc/self/cwd/../other/notes.txt",
    "own file": "echo x > ../share/config.toml",
    "new own file": "echo x > ../share/mcp.json",
    "own files moved away": "mv ../share ../elsewhere",
    "own session": "rm -rf ../share/sessions",
    "exchange": python(
        'import ctypes; ctypes.CDLL(None).renameat2(-100, b"sub/a.txt", -100, b"../other/notes.txt", 2)'
    ),
}

PROTECTED = {
    "configuration": "echo '[core] fsmonitor = evil' >> .git/config",
    "configuration by git": "git config core.fsmonitor evil",
    "configuration replaced": "cp .git/config sub/c; echo evil >> sub/c; mv -f sub/c .git/config",
    "new hook": "echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    "hook changed": "echo evil > .git/hooks/sample",
    "hooks replaced": "mv .git/hooks sub/h; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    "another common directory": "mkdir sub/c; echo ../sub/c > .git/commondir",
    "configuration of a work tree": "echo evil > .git/config.worktree",
    "submodule": "mkdir -p .git/modules/m; echo evil > .git/modules/m/config",
    "attributes": "mkdir .git/info; echo '* filter=evil' > .git/info/attributes",
    "repository replaced": "mv .git sub/old; mkdir .git; echo evil > .git/config",
    "repository removed": "rm -rf .git",
    "repository replaced by a file": "rm -rf .git; echo gitdir: sub > .git",
    "own directory": "mkdir .kimi; echo evil > .kimi/config",
    "own directory by a link": "mkdir sub/k; ln -s sub/k .kimi; echo evil > .kimi/skills",
    "own directory moved in": "mkdir sub/k; echo evil > sub/k/x; mv sub/k .kimi",
    "through a link": "ln -s ../.git sub/g; echo evil > sub/g/config",
    "hard link, then write": "ln .git/config sub/c && echo evil > sub/c",
    "through the root of a process": "echo evil > /proc/self/root$PWD/.git/config",
    "through dots": "echo evil > sub/../.git/config",
    "mode, then write": "chmod 777 .git .git/config; echo evil > .git/config",
    "truncate": python('import os; os.truncate(".git/config", 0)'),
    "exchange": python(
        'import ctypes, os; os.mkdir("sub/g"); ctypes.CDLL(None).renameat2(-100, b"sub/g", -100, b".git", 2)'
    ),
}


def contents(place: SandboxPlace) -> dict[str, dict[str, str]]:
    """Everything that no command may change, without modes: where it may write, not every sandbox keeps them."""
    found = {name: read_tree(place.home / name) for name in ("other", "share", "work/.git", "work/.kimi")}
    found["home"] = dict.fromkeys(os.listdir(place.home), "")
    return {tree: {name: text.partition(" ")[2] for name, text in entries.items()} for tree, entries in found.items()}


@pytest.mark.parametrize("attack", [*OUTSIDE, *PROTECTED])
def test_each_attack_succeeds_without_a_sandbox(attack: str, home: Path) -> None:
    place = SandboxPlace(home)
    before = contents(place)
    run_bare(("/bin/bash", "-c", {**OUTSIDE, **PROTECTED}[attack]), str(place.work))
    assert contents(place) != before


@pytest.mark.spec("R-180")
@pytest.mark.parametrize("attack", OUTSIDE)
async def test_nothing_outside_of_the_roots_changes(place: SandboxPlace, attack: str) -> None:
    before = contents(place)
    await place.run(OUTSIDE[attack], network=True)
    assert contents(place) == before


@pytest.mark.spec("R-181")
@pytest.mark.parametrize("attack", PROTECTED)
async def test_protected_entries_of_a_root_do_not_change(place: SandboxPlace, attack: str) -> None:
    before = contents(place)
    await place.run(PROTECTED[attack], network=True)
    assert contents(place) == before


@pytest.mark.spec("R-181")
@pytest.mark.parametrize("attack", PROTECTED)
async def test_a_command_cannot_make_a_repository(place: SandboxPlace, attack: str) -> None:
    shutil.rmtree(place.work / ".git")
    await place.run(f"{PROTECTED[attack]}; git init; mkdir -p .git/hooks; echo evil > .git/config")
    assert not (place.work / ".git").exists()
    assert not (place.work / ".kimi").exists()


@pytest.mark.spec("R-181")
async def test_links_and_pointers_are_protected_with_what_they_lead_to(place: SandboxPlace) -> None:
    work = place.work
    (work / ".git").rename(work / "real.git")
    (work / "conf").mkdir()
    (work / ".kimi").symlink_to("conf")
    (work / "linked").mkdir()
    (work / ".git").write_text("gitdir: linked\n")
    (work / "linked/commondir").write_text("../real.git\n")
    before = {name: read_tree(work / name) for name in ("real.git", "conf", "linked")}
    for command in (
        "echo x > real.git/config",
        "echo x > conf/x",
        "echo x > linked/config",
        "rm .kimi && mkdir .kimi",
        "ln -sfn /etc .kimi",
        "echo gitdir: sub > .git",
        "rm -f .git; mv sub .git",
    ):
        await place.run(command)
        assert {name: read_tree(work / name) for name in before} == before, command
        assert (work / ".kimi").readlink() == Path("conf"), command
        assert (work / ".git").read_text() == "gitdir: linked\n", command
    assert (await place.run("echo y > sub/b.txt")).returncode == 0


@pytest.mark.spec("R-181")
async def test_submodules_keep_their_repositories(place: SandboxPlace) -> None:
    work = place.work
    shutil.rmtree(work / ".git")
    links = " && ".join(f"git update-index --add --cacheinfo 160000,{'1' * 40},{path}" for path in ("m", "lib/n"))
    made = run_bare(("/bin/bash", "-c", f"git init -q . && {links} && git init -q m && mkdir -p lib/n"), str(work))
    assert made.returncode == 0, made.stderr
    (work / "m/.git").rename(work / ".git/moved")
    (work / "m/.git").write_text("gitdir: ../.git/moved\n")
    (work / "m/src").mkdir()
    for command in (
        "echo gitdir: ../sub > m/.git",
        "rm -f m/.git; mv sub m/.git",
        "mv m sub/m; mkdir m; echo gitdir: ../sub > m/.git",
        "echo gitdir: ../../sub > lib/n/.git",
        "rmdir lib/n; mkdir -p lib/n/.git",
        "mv lib sub/lib; mkdir -p lib/n/.git",
    ):
        await place.run(command)
        assert (work / "m/.git").read_text() == "gitdir: ../.git/moved\n", command
        assert list((work / "lib/n").iterdir()) == [], command
    assert (await place.run("echo x > m/src/x")).returncode == 0


async def test_an_own_file_inside_of_a_root_is_neither_read_nor_changed(place: SandboxPlace) -> None:
    own = place.work / "sub/keys.toml"
    own.write_text(SECRET)
    place.own_files.append(str(own))
    done = await place.run(
        "cat sub/keys.toml; cp sub/keys.toml sub/b; mv sub/keys.toml sub/c; echo x > sub/keys.toml; "
        "mv sub moved; mkdir sub; echo x > sub/keys.toml"
    )
    assert SECRET not in done.stdout
    assert own.read_text() == SECRET
    copies = [path for path in place.work.rglob("*") if path.is_file() and SECRET in path.read_text()]
    assert copies == [own]


# --- what can be changed ------------------------------------------------------------------------------------------


@pytest.mark.spec("R-180")
async def test_roots_and_the_temporary_directory_can_be_written(place: SandboxPlace) -> None:
    sandbox = place.sandbox(writable=[str(place.home / "other")])
    done = await run_in(
        sandbox,
        "set -e; echo b > sub/b.txt; echo c >> sub/a.txt; mv sub/b.txt sub/c.txt; mkdir sub/d; ln -s a.txt sub/l; "
        "rm sub/c.txt; echo e > ../extra/e.txt; echo o > ../other/o.txt; echo t > $TMPDIR/t; mktemp; cat <<< text; "
        "chmod +x sub/a.txt; echo $TMPDIR",
    )
    assert done.stderr == ""
    assert (place.work / "sub/a.txt").read_text() == "ac\n"
    assert (place.home / "extra/e.txt").read_text() == "e\n"
    assert (place.home / "other/o.txt").read_text() == "o\n"
    temp = Path(done.stdout.split()[-1])
    assert (temp / "t").read_text() == "t\n", "the file tools find what commands have written there"
    assert (await run_in(sandbox, "cat $TMPDIR/t")).stdout == "t\n"
    sandbox.close()
    assert not temp.exists()


@pytest.mark.spec("R-180")
async def test_in_read_only_mode_only_temporary_files_can_be_written(place: SandboxPlace) -> None:
    before = read_tree(place.home)
    for command in (*OUTSIDE.values(), *PROTECTED.values(), "echo x > sub/a.txt", "chmod 777 sub/a.txt", "touch sub"):
        done = await place.run(f"{command}; echo t > $TMPDIR/t && cat $TMPDIR/t", mode="read-only")
        assert done.stdout.endswith("t\n"), command
        assert read_tree(place.home) == before, command


async def test_new_entries_of_a_root_are_made_where_they_can_be(place: SandboxPlace) -> None:
    assert place.mechanism is not None
    done = await place.run("echo new > new.txt")
    assert (place.work / "new.txt").exists() == (place.mechanism.name == "bubblewrap")
    assert (done.returncode == 0) == (place.mechanism.name == "bubblewrap")


async def test_a_repository_can_be_looked_at_but_not_committed_to(place: SandboxPlace) -> None:
    shutil.rmtree(place.work / ".git")
    name = "git -c user.name=n -c user.email=e@x -c safe.directory=*"
    made = run_bare(("/bin/bash", "-c", f"git init -q . && git add . && {name} commit -qm first"), str(place.work))
    assert made.returncode == 0, made.stderr
    done = await place.run(
        f"set -e; echo b > sub/a.txt; {name} status --short; {name} diff --stat; {name} log --oneline"
    )
    assert done.returncode == 0, done.stderr
    assert " M sub/a.txt" in done.stdout
    assert "first" in done.stdout
    assert (await place.run(f"{name} commit -qam second")).returncode != 0


# --- what cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.spec("R-182")
@pytest.mark.parametrize("read_only", [True, False])
async def test_own_files_are_unreadable_but_for_skills(place: SandboxPlace, read_only: bool) -> None:
    (place.work / "sub/link").symlink_to("../../share")
    sandbox = place.sandbox()
    done = await run_in(
        sandbox,
        "cat ../share/config.toml ../share/sessions/s/context.jsonl sub/link/config.toml; "
        "cat /proc/self/root$PWD/../share/*; cp -r ../share $TMPDIR/; ln ../share/config.toml sub/hard; cat sub/hard; "
        "cat $TMPDIR/share/*; tar c ../share; "
        "cat ../share/skills/one/SKILL.md; cat ../other/notes.txt",
        read_only=read_only,
    )
    sandbox.close()
    assert SECRET not in done.stdout
    assert "a skill" in done.stdout
    assert done.stdout.endswith("notes")


@contextmanager
def other_process(**variables: str) -> Generator[subprocess.Popen[bytes]]:
    """A process of the user outside of the sandbox."""
    with subprocess.Popen(["/bin/sleep", "60"], env={**os.environ, **variables}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.spec("R-182")
async def test_other_processes_are_closed(place: SandboxPlace) -> None:
    with other_process(PLANTED=SECRET) as other:
        pid = other.pid
        done = await place.run(
            f"cat /proc/{pid}/environ; cat /proc/{pid}/root{place.home}/share/config.toml; "
            f"cat /proc/{pid}/cwd/../share/config.toml; head -c 1 /proc/{pid}/mem; "
            f"cat /proc/{pid}/fd/0; kill -9 {pid}; "
            + python(f'import ctypes; print("traced", ctypes.CDLL(None).ptrace(16, {pid}, 0, 0))')
            + "; "
            + python(f"import os, signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 9)"),
            network=True,
        )
        assert SECRET not in done.stdout
        assert "traced -1\n" in done.stdout
        await anyio.sleep(0.05)
        assert other.poll() is None, "it was killed"


# --- the network --------------------------------------------------------------------------------------------------


@contextmanager
def listening(address: tuple[str, int] | str) -> Generator[socket.socket]:
    """A server outside of the sandbox that notes each connection."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as server:
        server.bind(address)
        server.listen()
        server.settimeout(0)
        yield server


def connecting(family: str, address: str) -> str:
    return python(f"import socket; s = socket.socket(socket.{family}); s.connect({address}); print(1)")


@pytest.mark.spec("R-183")
@pytest.mark.parametrize("network", [True, False])
async def test_the_network_is_as_the_settings_say(place: SandboxPlace, network: bool) -> None:
    with listening(("127.0.0.1", 0)) as server:
        address = f'("127.0.0.1", {server.getsockname()[1]})'
        assert run_bare(("/bin/bash", "-c", connecting("AF_INET", address)), "/").stdout == "1\n"
        done = await place.run(connecting("AF_INET", address), network=network)
        assert (done.stdout == "1\n") == network


@pytest.mark.spec("R-183")
@pytest.mark.parametrize("kind", ["abstract", "temporary", "datagram"])
async def test_no_other_way_leads_out_with_the_network_off(place: SandboxPlace, kind: str, tmp_path: Path) -> None:
    names = {"abstract": f"\0kimi-test-{os.getpid()}", "temporary": str(tmp_path / "s")}
    if kind in names:
        with listening(names[kind]):
            address = repr(names[kind]).replace("'", '"')
            assert run_bare(("/bin/bash", "-c", connecting("AF_UNIX", address)), "/").stdout == "1\n"
            assert (await place.run(connecting("AF_UNIX", address))).stdout == ""
        return
    datagram = python('import socket; s = socket.socket(2, 2); s.sendto(b"x", ("192.0.2.1", 53)); print(1)')
    assert (await place.run(datagram)).stdout == ""


# --- rights -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("R-184")
async def test_a_command_has_no_privileges_and_gets_none(place: SandboxPlace) -> None:
    done = await place.run("cat /proc/self/status", network=True)
    status = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapInh"], 16) == 0


@pytest.mark.spec("R-184")
@pytest.mark.parametrize(
    "command",
    [
        "mount --bind sub ../other",
        "mount -t tmpfs none sub",
        "mount -o remount,rw /",
        "umount -l .git",
        "unshare -Urm mount --bind sub ../other",
        "unshare -Urm sh -c 'umount -l ../share; mount -o remount,bind,rw / && echo x > ../other/notes.txt'",
        "mknod sub/disk b 254 0",
        "echo x > /proc/sys/kernel/hostname",
        "chroot .. /bin/true",
    ],
)
async def test_the_shape_of_the_sandbox_cannot_be_changed(place: SandboxPlace, command: str) -> None:
    before = contents(place)
    assert (await place.run(command, network=True)).returncode != 0
    assert contents(place) == before


@pytest.mark.spec("R-184")
async def test_disks_and_kernel_settings_cannot_be_opened(place: SandboxPlace) -> None:
    disks = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(("vd", "sd", "nvme", "dm-"))]
    program = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    for flags in (os.O_RDONLY, os.O_WRONLY):\n"
        "        try: os.open(path, flags)\n"
        "        except OSError: continue\n"
        "        print(path, flags)\n"
    )
    writable = "/proc/sys/kernel/core_pattern /proc/sysrq-trigger /sys/power/state"
    done = await place.run(f"{python(program)} {' '.join(disks)} {writable}", network=True)
    assert "/dev/" not in done.stdout
    assert f" {os.O_WRONLY}\n" not in done.stdout


# --- a command like any other -------------------------------------------------------------------------------------


async def test_output_and_exit_status_are_passed_through(place: SandboxPlace) -> None:
    done = await place.run("printf 'out\\0\\n'; echo err >&2; pwd; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == (f"out\0\n{place.work}\n", "err\n", 3)
    assert (await place.run("kill -9 $$")).returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert (await place.run("exec /no/such/program")).returncode in (126, 127)


async def test_a_program_that_is_missing_is_an_error(place: SandboxPlace) -> None:
    confined = await place.sandbox().confine(("/no/such/program",), read_only=True)
    assert confined is not None
    done = run_bare(confined.argv, str(place.work))
    assert done.returncode != 0
    assert "No such file or directory" in done.stderr


@pytest.mark.spec("R-184")
async def test_a_command_ends_with_its_caller(place: SandboxPlace) -> None:
    sandbox = place.sandbox()
    confined = await sandbox.confine(("/bin/bash", "-c", "echo up > sub/up; exec sleep 61"), read_only=False)
    assert confined is not None
    caller = start_caller(confined.argv, place.work)
    up = place.work / "sub/up"
    assert comes_true(up.exists, WAIT_S)
    below = find_descendants(caller.pid)
    assert below
    caller.kill()
    caller.wait()
    assert comes_true(lambda: not any(is_alive(pid) for pid in below), WAIT_S)
    sandbox.close()


def start_caller(argv: tuple[str, ...], work_dir: Path) -> subprocess.Popen[bytes]:
    """A process that runs a command and waits for it."""
    program = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    return subprocess.Popen([sys.executable, "-c", program, *argv], cwd=work_dir, start_new_session=True)


def find_descendants(pid: int) -> dict[int, str]:
    """Every process below this one, with its command line."""
    found: dict[int, str] = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            found |= find_descendants(int(child))
    return found


async def test_concurrent_commands_share_one_sandbox(place: SandboxPlace) -> None:
    sandbox = place.sandbox()
    confined = await sandbox.confine(
        ("/bin/bash", "-c", "echo $$ > sub/$RANDOM$$; echo x > .git/config"), read_only=False
    )
    assert confined is not None
    argv = confined.argv
    threads = [threading.Thread(target=run_bare, args=(argv, str(place.work))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(list((place.work / "sub").iterdir())) >= 2
    assert "x" not in (place.work / ".git/config").read_text()
    sandbox.close()
