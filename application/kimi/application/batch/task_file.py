"""The lines of a task file: one JSON object a task (runtime spec 10.1)."""

from __future__ import annotations

import hashlib
import json
import os
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from kimi.domain.batch import BatchMode, BatchRefused, BatchTask, WorktreeSource

BUILTIN_AGENTS: Final = ("default", "okabe")

_ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""An id is also the name of a directory and the end of a branch."""

_MAX_ERRORS_SHOWN: Final = 3


def _check_text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a NUL character cannot be used here")
    return text


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    if any(not name or "=" in name or "\0" in name + value for name, value in variables.items()):
        raise ValueError("a name has at least one character and no '=', and neither name nor value a NUL character")
    return variables


_Text: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_check_text)]
"""What is handed to the system: paths, names."""


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _WorktreeLine(_Line):
    repository: _Text
    ref: _Text = "HEAD"
    branch: _Text | None = None


class _TaskLine(_Line):
    id: Annotated[str, Field(pattern=_ID_PATTERN)]
    prompt: Annotated[str, Field(min_length=1)]
    work_dir: _Text | None = None
    worktree: _WorktreeLine | None = None
    model: _Text | None = None
    agent: _Text | None = None
    mode: BatchMode | None = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_steps: Annotated[int, Field(ge=1)] | None = None
    retries: Annotated[int, Field(ge=0, le=100)] | None = None
    env: Annotated[dict[str, str], AfterValidator(_check_variables)] = {}
    metadata: Any = None

    @model_validator(mode="after")
    def _check_place(self) -> _TaskLine:
        if (self.work_dir is None) == (self.worktree is None):
            raise ValueError("a task has either work_dir or worktree")
        return self


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """What holds for tasks that do not say it themselves."""

    timeout_s: float | None = None
    max_tokens: int | None = None
    retries: int = 0


def parse_tasks(lines: Iterable[bytes], path: str, defaults: TaskDefaults) -> list[BatchTask]:
    """Return the tasks of a file in its order; empty lines are skipped. Relative paths begin where the file is.

    Raises BatchRefused, which names file, line and what is wrong with it.
    """
    directory = os.path.dirname(path)
    tasks: list[BatchTask] = []
    errors: list[str] = []
    lines_by_id: dict[str, int] = {}
    for number, text in enumerate(lines, 1):
        if number == 1:
            text = text.removeprefix(BOM_UTF8)
        if not text.strip():
            continue
        try:
            task = _parse_line(text, directory, defaults)
            # Names of directories may differ in more than the case of letters, on every system.
            if (first := lines_by_id.setdefault(task.id.casefold(), number)) != number:
                raise ValueError(f"the id '{task.id}' is that of line {first}, too")
        except ValueError as error:
            errors.append(f"{path}, line {number}: {error}.")
        else:
            tasks.append(task)
    if errors:
        more = len(errors) - _MAX_ERRORS_SHOWN
        shown = errors[:_MAX_ERRORS_SHOWN] + ([f"{more} more lines cannot be used."] if more > 0 else [])
        raise BatchRefused("\n".join(shown))
    if not tasks:
        raise BatchRefused(f"{path} holds no task; write one JSON object a line, as docs/batch.md shows.")
    return tasks


def _parse_line(text: bytes, directory: str, defaults: TaskDefaults) -> BatchTask:
    try:
        value = from_json(text, allow_inf_nan=False)  # no deeper than can be written again
    except ValueError as error:
        raise ValueError(f"this is not a JSON object: {str(error).replace(' at line 1 ', ' at ')}") from None
    if not isinstance(value, dict):
        raise ValueError("this is not a JSON object")
    try:
        line = _TaskLine.model_validate(value)
    except ValidationError as error:
        raise ValueError(_describe_fault(error)) from None
    source = line.worktree
    return BatchTask(
        line.id,
        line.prompt,
        hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16],
        work_dir=_resolve(line.work_dir, directory),
        worktree=source and WorktreeSource(_resolve(source.repository, directory) or "", source.ref, source.branch),
        model=line.model,
        agent=line.agent if line.agent in BUILTIN_AGENTS else _resolve(line.agent, directory),
        mode=line.mode,
        timeout_s=line.timeout if line.timeout is not None else defaults.timeout_s,
        max_tokens=line.max_tokens if line.max_tokens is not None else defaults.max_tokens,
        max_steps=line.max_steps,
        retries=line.retries if line.retries is not None else defaults.retries,
        env=line.env,
        metadata=line.metadata,
    )


def _resolve(path: str | None, directory: str) -> str | None:
    return None if path is None else os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def _describe_fault(error: ValidationError) -> str:
    """Return the first fault of a line; values are not repeated, because `env` may hold keys."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    # A key that is misspelled is unknown and missing, and the first says more.
    first = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    place = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "extra_forbidden":
            known = _WorktreeLine if place.startswith("worktree.") else _TaskLine
            return f"unknown key '{place}'; the keys are {', '.join(known.model_fields)}"
        case "missing":
            return f"the key '{place}' is missing"
        case "string_pattern_mismatch" if place == "id":
            return "an id has 1 to 64 letters, digits, dots, dashes and underscores, and begins with a letter or digit"
        case _:
            text = first["msg"].removeprefix("Value error, ")
            return f"{place}: {text[:1].lower()}{text[1:]}" if place else text[:1].lower() + text[1:]
