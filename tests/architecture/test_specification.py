"""Whatever names a section or an id of the specification (docs/spec) names one that is there."""

from __future__ import annotations

import ast
import csv
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "docs" / "spec"
DOCUMENTS = ("wire", "tools", "runtime", "acp", "performance")
SOURCES = ("domain", "application", "infrastructure", "interfaces", "tests", "benchmarks", "scripts")
CODE = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__)]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
SPEC_PAGES = sorted(SPEC.glob("*.md"))

NUMBER = r"\d{1,2}(?:\.\d{1,2})?(?![\w.]*\d)"
GAP = r"\s+(?:#\s+)?"
"""Between two words; a comment may break its line there."""

HEADING = re.compile(r"^#{2,4} (\d+(?:\.\d+)?)\.? \S", re.MULTILINE)
REFERENCE = re.compile(
    rf"\b({'|'.join(DOCUMENTS)}){GAP}spec{GAP}({NUMBER}(?:(?:,{GAP}|{GAP}to{GAP}|{GAP}and{GAP}){NUMBER})*)",
    re.IGNORECASE,
)
OWN_REFERENCE = re.compile(rf"§({NUMBER})")
LOOSE = re.compile(
    rf"\b(?:{'|'.join(DOCUMENTS)}|house|spec) §?{NUMBER}|\bhouse rules?\b|(?<!\d )\b[Ss]ections? §?{NUMBER}"
)
"""Forms of a reference that this module could not follow: without `spec`, or without the document's name."""

ID = re.compile(r"(?<![\w-])(?:W|R|T|A|B|RX|TX)-\d{2,3}(?![\w-])")
DEFECT = re.compile(r"^\| ((?:B|RX|TX)-\d+) \|", re.MULTILINE)
STATED = re.compile(r"^(?:- |\| )?([WRTA]-\d+)(?::| \|)? (.+)$", re.MULTILINE)
LEVEL = re.compile(r" \| ([CE])\+? \|$")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")


class Item(NamedTuple):
    """An item of a checklist: its text without marks, and what its line says of the level."""

    text: str
    levels: frozenset[str]


# --- what is there --------------------------------------------------------------------------------------------


@cache
def headings() -> Mapping[str, frozenset[str]]:
    """The numbers of the sections of each document."""
    return {name: frozenset(HEADING.findall(text_of(SPEC / f"{name}.md"))) for name in DOCUMENTS}


@cache
def rows() -> list[list[str]]:
    """The lines of the id list: id, area, levels, text, and the twins of some."""
    with (SPEC / "ids.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def listed() -> dict[str, Item]:
    """What the id list says of each item."""
    return {row[0]: Item(row[3], frozenset(row[2].split(","))) for row in rows()}


def stated(text: str) -> dict[str, Item]:
    """What the checklist in a document says of each item."""
    found: dict[str, Item] = {}
    for name, said in STATED.findall(text):
        level = LEVEL.search(said)
        levels = {"core" if level[1] == "C" else "extended"} if level else set[str]()
        plain = LEVEL.sub("", said).strip()
        if plain.endswith(" [sec]"):
            levels.add("sec")
        found[name] = Item(plain.removesuffix(" [sec]").removesuffix(".").replace("\\|", "|"), frozenset(levels))
    return found


@cache
def known_ids() -> frozenset[str]:
    """Items of the checklists and rows of the tables of defects."""
    defects = (name for path in SPEC_PAGES for name in DEFECT.findall(text_of(path)))
    return frozenset([*listed(), *defects])


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def prose(source: str) -> str:
    """Comments and docstrings of a module, those of attributes included."""
    docstrings = (
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return "\n".join([*docstrings, *comments])


# --- what is wrong --------------------------------------------------------------------------------------------


def dangling(text: str, own: str | None = None) -> list[str]:
    """References to sections that do not exist; `own` is the document that `text` is, for its `§4.2`."""
    found = [
        f"{match[1]} spec {number}"
        for match in REFERENCE.finditer(text)
        for number in re.findall(NUMBER, match[2])
        if number not in headings()[match[1].lower()]
    ]
    if own is not None:
        found += [f"§{number}" for number in OWN_REFERENCE.findall(text) if number not in headings()[own]]
    return found


def loose(text: str) -> list[str]:
    """References of another form."""
    return LOOSE.findall(REFERENCE.sub("", text))


def unknown_ids(text: str) -> list[str]:
    """Ids that neither a checklist nor a table of defects has."""
    return [name for name in ID.findall(text) if name not in known_ids()]


def disagreements(document: Mapping[str, Item], ids: Mapping[str, Item]) -> Iterator[str]:
    """Items that one of the two lacks or puts otherwise; the list may name more levels than a document does."""
    yield from sorted(document.keys() ^ ids.keys())
    for name in sorted(document.keys() & ids.keys()):
        if document[name].text != ids[name].text or not document[name].levels <= ids[name].levels:
            yield name


def dead_links(text: str, path: Path) -> list[str]:
    """Relative links of the page at `path` to files or headings that are not there."""
    found: list[str] = []
    for target in LINK.findall(text):
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        if not target.startswith("http") and not (place.is_file() and (not anchor or anchor in anchors(place))):
            found.append(target)
    return found


def anchors(path: Path) -> set[str]:
    """What the headings of a page can be linked as."""
    titles = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def places(paths: Iterable[Path], find: Callable[[str], list[str]]) -> list[str]:
    """Where `find` finds something: anywhere in a page, in comments and docstrings of a module."""
    found: list[str] = []
    for path in paths:
        text = text_of(path)
        if find(text) and (wrong := find(prose(text) if path.suffix == ".py" else text)):
            found.append(f"{path.relative_to(ROOT)}: {', '.join(wrong)}")
    return found


def marks(source: str) -> Iterator[str]:
    """The ids that tests of a module say they prove."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec":
            yield from (str(value.value) for value in node.args if isinstance(value, ast.Constant))


# --- the program, its tests and documents -----------------------------------------------------------------------


def test_every_section_that_code_and_documents_name_exists() -> None:
    found = [f"{path.relative_to(ROOT)}: {wrong}" for path in [*CODE, *PAGES] if (wrong := dangling(text_of(path)))]
    assert found == []


def test_code_and_documents_name_sections_in_one_form() -> None:
    assert places([*CODE, *PAGES, *SPEC_PAGES], loose) == []


def test_every_id_that_code_and_documents_mention_exists() -> None:
    assert places([*CODE, *PAGES, *SPEC_PAGES], unknown_ids) == []


def test_every_mark_names_an_item_of_a_checklist() -> None:
    marked = {name for path in CODE if "mark.spec" in text_of(path) for name in marks(text_of(path))}
    assert len(marked) > 500
    assert marked - listed().keys() == set()


# --- the specification itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SPEC_PAGES, ids=lambda path: path.name)
def test_sections_and_links_in_the_specification_lead_somewhere(path: Path) -> None:
    own = path.stem if path.stem in DOCUMENTS else None
    assert dangling(text_of(path), own) == []
    assert dead_links(text_of(path), path) == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_sections_are_numbered_once_and_in_order(name: str) -> None:
    numbers = [tuple(map(int, number.split("."))) for number in HEADING.findall(text_of(SPEC / f"{name}.md"))]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 5


def test_the_list_of_ids_and_the_checklists_agree() -> None:
    found: dict[str, Item] = {}
    for name in DOCUMENTS:
        items = stated(text_of(SPEC / f"{name}.md"))
        assert not found.keys() & items.keys()
        found |= items
    assert list(disagreements(found, listed())) == []


def test_the_overview_names_the_first_and_the_last_item_of_each_checklist() -> None:
    overview = re.findall(r"([WRTA]-\d+) … ([WRTA]-\d+)", text_of(SPEC / "README.md"))
    ends = [[item for item in listed() if item[0] == letter] for letter in "WRTA"]
    assert overview == [(items[0], items[-1]) for items in ends]


def test_ids_are_numbered_without_gaps_but_before_a_ten_and_twins_exist() -> None:
    names = [row[0] for row in rows()]
    for letter in "WRTA":
        numbers = [int(name[2:]) for name in names if name[0] == letter]
        assert numbers[0] == 1
        for before, number in pairwise(numbers):
            starts_range = number > before and number % 10 == 0
            assert number == before + 1 or starts_range, "an item that falls away keeps its line"
    twins = {name for row in rows() for name in re.split(r"[,\s]+", "".join(row[4:])) if name}
    assert twins <= set(names)


# --- the rules above can fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(wire spec 4.2, tools spec 3.10, 3.11)", []),
        ("(wire spec 4.2 to 4.4; R-143)", []),
        ("Tokens count (runtime spec 3.9, 4.2).", []),
        ("`protocol` (wire\n    # spec 99.1)", ["wire spec 99.1"]),
        ("(tools spec 3.10, 3.99)", ["tools spec 3.99"]),
        ("(wire spec 4.2 to 4.98)", ["wire spec 4.98"]),
        ("Performance spec 77 says so", ["Performance spec 77"]),
    ],
)
def test_a_section_that_does_not_exist_is_found(text: str, wrong: list[str]) -> None:
    assert dangling(text) == wrong
    assert dangling("see §1.1 and §55", "wire") == ["§55"]


@pytest.mark.parametrize(
    "text",
    [
        "merged (wire 7.13)",
        "as acp §4.2 says",
        "(house 5)",
        "(house rules)",
        "the text of spec 4.2",
        "see section 4.6",
        "sections 3 and 4",
    ],
)
def test_a_reference_of_another_form_is_found(text: str) -> None:
    assert loose(text)


@pytest.mark.parametrize(
    "text",
    ["(wire spec 4.2)", "tools spec 3.10, 3.11", "Wire 1.10", "RFC 3986 section 3.2", "the house", "15 tools"],
)
def test_the_one_form_and_other_words_are_left_alone(text: str) -> None:
    assert not loose(text)


def test_an_unknown_id_is_found_in_prose_and_marks_only() -> None:
    source = '"""Says W-999."""\nx = "T-999"  # see B-98, R-01\ndef f():\n    """A"""\n    """RX-99"""\n'
    assert unknown_ids(prose(source)) == ["W-999", "RX-99", "B-98"]
    assert list(marks('@pytest.mark.spec("W-01", "W-999")\ndef test_x(): ...')) == ["W-01", "W-999"]
    assert unknown_ids("gpt-4, T-1000, UTF-16, W-01") == []


def test_a_checklist_that_differs_from_the_list_is_found() -> None:
    text = "W-01: one.\n| R-02 | a \\| b | E+ |\n- T-03 three. [sec]\n- A-04 four"
    core, extended, secret = frozenset(["core"]), frozenset(["extended"]), frozenset(["core", "sec"])
    same = {
        "W-01": Item("one", core),
        "R-02": Item("a | b", extended),
        "T-03": Item("three", secret),
        "A-04": Item("four", core),
    }
    assert list(disagreements(stated(text), same)) == []
    other = {"W-01": Item("two", core), "R-02": Item("a | b", core), "T-03": Item("three", core)}
    more = {**same, **other, "A-05": Item("five", core)}
    assert list(disagreements(stated(text), more)) == ["A-05", "R-02", "T-03", "W-01"]


def test_a_dead_link_is_found() -> None:
    text = "[a](wire.md) [b](none.md) [c](wire.md#no-such-heading) [d](#no-such-heading) [e](https://example.com)"
    assert dead_links(text, SPEC / "README.md") == ["none.md", "wire.md#no-such-heading", "#no-such-heading"]
