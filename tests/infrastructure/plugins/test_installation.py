"""Plugins are installed and removed with bounds, and nothing of them is run (tools spec 3.18)."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kimi.application.admin.plugins import PluginRefused
from kimi.infrastructure.plugins import copying
from kimi.infrastructure.plugins.installation import UserPluginStore
from tests.support.plugins.plugin_directories import GREET, SKILL, with_tool, write_plugin, zip_directory

MANIFEST = json.dumps({"name": "hello", "tools": [GREET]})


@pytest.fixture
def store(tmp_path: Path) -> UserPluginStore:
    return UserPluginStore(str(tmp_path / "share"))


def install(store: UserPluginStore, source: Path) -> Path:
    with store.stage(str(source)) as staged:
        return Path(staged.install())


def refusal(store: UserPluginStore, source: Path | str) -> str:
    with pytest.raises(PluginRefused) as refused, store.stage(str(source)):
        pass
    share = Path(store.path).parent
    assert not share.exists() or not [path for path in share.rglob("*") if not path.is_dir()], "something was left"
    return str(refused.value)


def archive_of(path: Path, **entries: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plugin.json", MANIFEST)
        for name, text in entries.items():
            archive.writestr(name, text)
    return path


@pytest.mark.spec("R-305")
@pytest.mark.parametrize("form", ["directory", "archive", "archive with a top directory"])
def test_a_plugin_is_installed_from_a_directory_or_an_archive(
    tmp_path: Path, store: UserPluginStore, form: str
) -> None:
    source = write_plugin(tmp_path)
    (source / "SKILL.md").write_text(SKILL, encoding="utf-8")
    (source / "scripts/tool.py").chmod(0o755)
    for left_out in (".git", "scripts/__pycache__"):
        (source / left_out).mkdir()
        (source / left_out / "x").touch()
    if form != "directory":
        source = zip_directory(source, tmp_path / "a.zip", "hello-main" if "top" in form else "")
    target = install(store, source)
    assert target == Path(store.path, "hello")
    files = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert files == {"plugin.json", "SKILL.md", "scripts/tool.py"}
    assert stat.S_IMODE((target / "scripts/tool.py").stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "plugin.json").stat().st_mode) == 0o600
    [plugin] = store.load().plugins
    assert (plugin.name, plugin.directory, plugin.has_skill) == ("hello", str(target), True)
    assert not [path for path in target.parent.parent.iterdir() if path.name.startswith(".plugin-")]


def test_a_plugin_that_is_not_wanted_leaves_nothing(tmp_path: Path, store: UserPluginStore) -> None:
    with store.stage(str(write_plugin(tmp_path))) as staged:
        assert staged.plugin.name == "hello"
    assert not list(Path(store.path).parent.iterdir())


@pytest.mark.spec("R-305")
def test_a_plugin_of_a_name_that_is_taken_is_not_installed(tmp_path: Path, store: UserPluginStore) -> None:
    target = install(store, write_plugin(tmp_path))
    (target / "config.json").write_text("mine", encoding="utf-8")
    other = write_plugin(tmp_path / "b", "HELLO")
    with pytest.raises(PluginRefused, match="kimi plugin remove HELLO"), store.stage(str(other)):
        pass
    assert (target / "config.json").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("source", ["https://example.org/p.git", "git@example.org:p.git"])
def test_an_address_is_refused_with_what_to_do(store: UserPluginStore, source: str) -> None:
    assert "Fetch it yourself" in refusal(store, source)


@pytest.mark.spec("R-306")
@pytest.mark.parametrize(
    "name",
    ["../out", "a/../../out", "/tmp/out", "C:/out", "c:out", "a\\..\\out", "a//b", "./a", "a\n", "a. ", "..."],
)
def test_an_archive_with_a_path_to_elsewhere_is_refused(tmp_path: Path, store: UserPluginStore, name: str) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("plugin.json", MANIFEST)
        entry = zipfile.ZipInfo("x")
        entry.filename = name
        archive.writestr(entry, "planted")
    assert "which is not used" in refusal(store, path)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "share/out").exists()


def write_link(path: Path) -> None:
    entry = zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(entry, "/etc/passwd")


def write_device(path: Path) -> None:
    entry = zipfile.ZipInfo("device")
    entry.external_attr = (stat.S_IFCHR | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(entry, "")


def write_twice(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("PLUGIN.json", "{}")


def write_many(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(copying.MAX_FILES):
            archive.writestr(f"f{number}", "")


def write_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(copying.MAX_BYTES))


def write_deep(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("/".join("d" * copying.MAX_LEVELS) + "/f", "")


def write_large_table(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(8_000):
            archive.writestr(f"{number:0300}", "")


def write_encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)


def write_torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


def write_wrong_sum(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"greet"', b'"gREET"', 1))


@pytest.mark.spec("R-306")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (write_link, "a link or no regular file"),
        (write_device, "a link or no regular file"),
        (write_twice, "twice"),
        (write_many, "more than 2000 files"),
        (write_large_table, "more than 2000 files"),
        (write_bomb, "more than 64 MiB"),
        (write_deep, "more than 16 levels"),
        (write_encrypted, "encrypted"),
        (write_torn, "no zip archive that can be read"),
        (write_wrong_sum, "no zip archive that can be read"),
    ],
)
def test_a_hostile_archive_is_refused_and_leaves_nothing(
    tmp_path: Path, store: UserPluginStore, spoil: Callable[[Path], None], reason: str
) -> None:
    path = archive_of(tmp_path / "a.zip")
    spoil(path)
    assert reason in refusal(store, path)


def add_link(source: Path) -> None:
    (source / "link").symlink_to("/etc/passwd")


def add_linked_directory(source: Path) -> None:
    (source / "link").symlink_to("/etc")


def add_fifo(source: Path) -> None:
    os.mkfifo(source / "pipe")


def add_many(source: Path) -> None:
    for number in range(copying.MAX_FILES):
        (source / f"f{number}").touch()


def add_large(source: Path) -> None:
    with (source / "large").open("wb") as file:
        file.truncate(copying.MAX_BYTES + 1)


def add_deep(source: Path) -> None:
    (source / "/".join("d" * (copying.MAX_LEVELS + 2))).mkdir(parents=True)


@pytest.mark.spec("R-306")
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (add_link, "a link or no regular file"),
        (add_linked_directory, "a link or no regular file"),
        (add_fifo, "a link or no regular file"),
        (add_many, "more than 2000 files"),
        (add_large, "more than 64 MiB"),
        (add_deep, "more than 16 levels"),
    ],
)
def test_a_directory_with_links_or_without_bounds_is_refused(
    tmp_path: Path, store: UserPluginStore, spoil: Callable[[Path], None], reason: str
) -> None:
    source = write_plugin(tmp_path)
    spoil(source)
    assert reason in refusal(store, source)


@pytest.mark.spec("R-306")
@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"name": "../up"}, "has no 'name'"),
        ({"tools": []}, "brings neither tools nor a SKILL.md"),
        ({"tools": [with_tool(parameters={"type": 7})]}, "because of its parameters"),
    ],
)
def test_what_is_no_plugin_is_not_installed(
    tmp_path: Path, store: UserPluginStore, members: dict[str, object], reason: str
) -> None:
    assert reason in refusal(store, write_plugin(tmp_path, **({"name": "hello"} | members)))  # type: ignore[arg-type]


@pytest.mark.spec("R-307")
def test_removing_deletes_the_plugin_and_nothing_else(tmp_path: Path, store: UserPluginStore) -> None:
    install(store, write_plugin(tmp_path))
    kept = install(store, write_plugin(tmp_path, "other"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    (Path(store.path) / "hello/link").symlink_to(outside)
    assert store.remove("hello") == str(Path(store.path, "hello"))
    assert os.listdir(store.path) == ["other"]
    assert (kept / "plugin.json").exists()
    assert (outside / "mine").exists()
    assert not [name for name in os.listdir(Path(store.path).parent) if name != "plugins"]


@pytest.mark.spec("R-307")
def test_of_a_linked_plugin_only_the_link_is_removed(tmp_path: Path, store: UserPluginStore) -> None:
    source = write_plugin(tmp_path)
    Path(store.path).mkdir(parents=True)
    (Path(store.path) / "hello").symlink_to(source)
    assert [plugin.name for plugin in store.load().plugins] == ["hello"]
    store.remove("hello")
    assert not os.listdir(store.path)
    assert (source / "plugin.json").exists()


@pytest.mark.spec("R-307")
@pytest.mark.parametrize("name", ["..", "../plugins", "hello/scripts", "", ".", "no"])
def test_only_the_name_of_a_plugin_removes_one(tmp_path: Path, store: UserPluginStore, name: str) -> None:
    target = install(store, write_plugin(tmp_path))
    with pytest.raises(PluginRefused, match="Installed: hello"):
        store.remove(name)
    assert (target / "scripts/tool.py").exists()


def test_a_plugin_that_cannot_be_used_can_be_removed(store: UserPluginStore) -> None:
    (Path(store.path) / "torn").mkdir(parents=True)
    assert [one.name for one in store.load().unusable] == ["torn"]
    store.remove("torn")
    assert not os.listdir(store.path)
