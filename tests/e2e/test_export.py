"""`kimi export` through the real process (runtime spec 1.6)."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from tests.support.program.wire_process import Json, Place
from tests.support.stored_sessions import event, mode, register, sessions_dir, write_session

ID = "0b5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a"
OTHER = "9a5ce6f2-2d1d-4c5e-9f7a-3c1f0e9d8b7a"
CONTEXT: list[Json] = [{"role": "user", "content": "find it"}, {"role": "assistant", "content": "here"}]
EVENTS: list[Json] = [
    {"type": "metadata", "protocol_version": "1.10"},
    event("TurnBegin", {"user_input": "find it"}, 1_760_000_000.5),
    event("TurnEnd", {}, 1_760_000_100.5),
]
NOT_CONFIRMED = "Error: nobody is there to confirm; name the session, or say --yes to export the last one."


def session(place: Place, session_id: str = ID) -> Path:
    directory = write_session(place, session_id, context=CONTEXT, events=EVENTS, state={"version": 1})
    (directory / "subagents" / "a1").mkdir(parents=True)
    (directory / "subagents" / "a1" / "prompt.txt").write_text("look there")
    (directory / "session.lock").write_text("1")
    return directory


def content(path: Path | str) -> dict[str, bytes]:
    """The files of an archive."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.spec("R-21")
def test_session_is_exported_with_all_files_and_a_manifest(place: Place) -> None:
    directory = session(place)
    (directory / "linked").symlink_to("/etc/passwd")
    done = place.run("export", ID)
    assert (done.returncode, done.stderr) == (0, b"")
    path = place.work / f"session-{ID}.zip"
    assert done.stdout.decode() == f"{path}\n"
    files = content(path)
    manifest = json.loads(files.pop("manifest.json"))
    assert files == {
        name: (directory / name).read_bytes()
        for name in ("context.jsonl", "wire.jsonl", "state.json", "subagents/a1/prompt.txt")
    }
    assert manifest.pop("exported_at").endswith("+00:00")
    about = json.loads(place.run("info", "--json").stdout)
    assert {key: manifest.pop(key) for key in ("kimi_cli_version", "wire_protocol_version", "python_version")} == {
        key: about[key] for key in ("kimi_cli_version", "wire_protocol_version", "python_version")
    }
    assert manifest.pop("os")
    assert manifest == {
        "session_id": ID,
        "first_activity": "2025-10-09T08:53:20+00:00",
        "last_activity": "2025-10-09T08:55:00+00:00",
    }
    assert mode(path) == 0o600
    assert sorted(os.listdir(place.work)) == [path.name]


@pytest.mark.spec("R-21")
@pytest.mark.parametrize("session_id", ["unknown", "..", "../x", "a/b", "", "x" * 300])
def test_an_unknown_session_is_refused(place: Place, session_id: str) -> None:
    session(place)
    done = place.run("export", session_id)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"Error: session '{session_id}' not found.\n"
    assert os.listdir(place.work) == []


def test_a_session_of_another_work_dir_is_found_after_those_of_this_one(place: Place) -> None:
    mine = session(place)
    elsewhere = place.share / "sessions" / ("0" * 32)
    for session_id, text in ((ID, "other"), (OTHER, "elsewhere")):
        (elsewhere / session_id).mkdir(parents=True)
        (elsewhere / session_id / "context.jsonl").write_text(text)
    (elsewhere / "oldest.jsonl").write_text("old")
    assert place.run("export", ID, "-o", "mine.zip").returncode == 0
    assert place.run("export", "--output", str(place.root / "o.zip"), OTHER).returncode == 0
    assert place.run("export", "oldest").returncode == 0
    assert content(place.work / "mine.zip")["context.jsonl"] == (mine / "context.jsonl").read_bytes()
    assert content(place.root / "o.zip")["context.jsonl"] == b"elsewhere"
    old = content(place.work / "session-oldest.zip")
    assert (sorted(old), old["context.jsonl"]) == (["context.jsonl", "manifest.json"], b"old")
    assert (elsewhere / "oldest.jsonl").exists()


@pytest.mark.spec("R-22")
def test_last_session_is_exported_after_confirmation(place: Place) -> None:
    session(place)
    session(place, OTHER)
    register(place, ID)
    archive = place.work / f"session-{ID}.zip"
    for answer, code in ((b"\n", 0), (b"n\n", 0), (b"", 1)):
        done = place.run("export", stdin=answer)
        assert (done.returncode, done.stdout) == (code, b"")
        assert done.stderr.startswith(f"Export the last session of this directory, {ID}? [y/N]: ".encode())
        assert not archive.exists()
    assert done.stderr.decode().endswith(f"\n{NOT_CONFIRMED}\n")
    done = place.run("export", stdin=b"y\n")
    assert (done.returncode, done.stdout.decode()) == (0, f"{archive}\n")
    archive.unlink()
    for option in ("--yes", "-y"):
        done = place.run("export", option)
        assert (done.returncode, done.stdout.decode(), done.stderr) == (0, f"{archive}\n", b"")
        assert content(archive)["wire.jsonl"]


@pytest.mark.spec("R-22")
@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_export_without_history_is_refused(place: Place, options: list[str]) -> None:
    done = place.run("export", *options)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"Error: no previous session found for the working directory.\n"
    assert list(place.share.iterdir()) == []


def test_export_uses_the_given_work_dir(place: Place) -> None:
    session(place)
    register(place, ID)
    elsewhere = place.root / "elsewhere"
    elsewhere.mkdir()
    assert place.run("--work-dir", str(elsewhere), "export", "--yes").returncode == 1
    place_of_run = Place(place.root / "nested", {"KIMI_SHARE_DIR": str(place.share)})
    done = place_of_run.run("-w", str(place.work), "export", "--yes")
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.listdir(place_of_run.work) == [f"session-{ID}.zip"]


@pytest.mark.parametrize("output", ["", "missing/x.zip", "/proc/x.zip", "pipe"])
def test_unwritable_output_is_reported_and_leaves_no_file(place: Place, output: str) -> None:
    session(place)
    os.mkfifo(place.work / "pipe")  # as good as a device, which must not be replaced by a file
    path = place.work / output
    done = place.run("export", ID, "--output", str(path))
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().startswith(f"Error: cannot write {path}: ")
    assert done.stderr.decode().endswith("; name another file with --output.\n")
    assert os.listdir(place.work) == ["pipe"]
    assert (place.work / "pipe").is_fifo()


def test_an_archive_is_replaced_as_a_whole(place: Place) -> None:
    session(place)
    path = place.work / f"session-{ID}.zip"
    path.write_text("an older one")
    assert place.run("export", ID).returncode == 0
    assert "manifest.json" in content(path)
    assert os.listdir(place.work) == [path.name]


def test_logs_near_session_or_now_are_included_and_listed(place: Place) -> None:
    session(place)
    logs = place.share / "logs"
    logs.mkdir()
    days = {"kimi.log": None, "kimi.2025-10-10.log": 1_760_000_000 + 86_400, "kimi.2025-01-01.log": 1_735_700_000}
    for name, written in days.items():
        (logs / name).write_text(name)
        if written is not None:
            os.utime(logs / name, (written, written))
    done = place.run("export", ID)
    assert done.returncode == 0
    assert b"private" in done.stderr
    files = content(place.work / f"session-{ID}.zip")
    assert {name: data for name, data in files.items() if name.startswith("logs/")} == {
        "logs/kimi.log": b"kimi.log",
        "logs/kimi.2025-10-10.log": b"kimi.2025-10-10.log",
    }


def test_a_session_that_is_open_is_exported_and_no_key_gets_into_manifest_or_logs(place: Place) -> None:
    place.environ = {"OPENAI_API_KEY": "sk-openai-0123456789"}
    place.script("text: hello")
    with place.wire() as kimi:
        kimi.prompt("hi")
        done = place.run("export", "--yes")
        assert done.returncode == 0
        files = content(done.stdout.decode().strip())
        assert kimi.finish() == 0
    assert {"manifest.json", "context.jsonl", "wire.jsonl", "state.json", "logs/kimi.log"} <= set(files)
    assert "session.lock" not in files
    told = b"".join(data for name, data in files.items() if name.startswith("logs/") or name == "manifest.json")
    for secret in (b"sk-test-secret", b"sk-openai-0123456789", b"scripts.json"):
        assert secret not in told
    assert str(sessions_dir(place)).encode() not in files["manifest.json"]


@pytest.mark.spec("R-313")
def test_a_session_becomes_one_page_that_its_owner_alone_can_read(place: Place) -> None:
    directory = session(place)
    config = '[providers.p]\ntype = "kimi"\nbase_url = "http://127.0.0.1:1"\napi_key = "planted-secret-1"\n'
    (place.share / "config.toml").write_text(config)
    with (directory / "wire.jsonl").open("a") as file:
        part = event("ContentPart", {"type": "text", "text": "<b>planted-secret-1</b> ü"}, 1_760_000_050.0)
        file.write(json.dumps(part) + "\nnot json\n")
    done = place.run("export", "--html", ID)
    assert done.returncode == 0, done.stderr
    path = place.work / f"session-{ID}.html"
    assert done.stdout.decode() == f"{path}\n"
    page = path.read_text(encoding="utf-8")
    assert "find it" in page
    assert "&lt;b&gt;***&lt;/b&gt; ü" in page
    assert "planted-secret-1" not in page
    assert mode(path) == 0o600
    assert sorted(os.listdir(place.work)) == [path.name]


@pytest.mark.spec("R-313")
def test_a_session_without_recorded_events_is_told_from_its_messages(place: Place) -> None:
    directory = session(place)
    (directory / "wire.jsonl").unlink()
    assert place.run("export", "--html", "-o", "page.html", ID).returncode == 0
    page = (place.work / "page.html").read_text(encoding="utf-8")
    assert page.index("find it") < page.index("<pre>\nhere")


def test_a_page_replaces_neither_a_directory_nor_a_device(place: Place) -> None:
    session(place)
    (place.work / "page.html").mkdir()
    for target in ("page.html", "/dev/null"):
        done = place.run("export", "--html", "-o", target, ID)
        assert done.returncode == 1
        assert b"name another file with --output" in done.stderr
    assert place.run("export", "--html", "unknown").stderr == b"Error: session 'unknown' not found.\n"


@pytest.mark.spec("R-316")
def test_commands_that_are_not_there_name_what_helps(place: Place) -> None:
    for command, hint in (("vis", b"kimi export --html"), ("term", b"kimi acp")):
        done = place.run(command)
        assert (done.returncode, done.stdout) == (2, b"")
        assert hint in b" ".join(done.stderr.split())
