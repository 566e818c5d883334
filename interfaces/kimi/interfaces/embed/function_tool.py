"""Tools from Python functions: the signature is the schema, the docstring the description."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final, TypeVar, cast, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import to_json

from kimi.application.ports import PreparedCall, ToolCallContext
from kimi.application.toolset.result_limits import fit_result_to_budget
from kimi.domain.content.message import JsonObject
from kimi.domain.errors import ConfigError
from kimi.domain.permissions.approval import ProposedAction
from kimi.domain.tools.tool import ToolReturnValue, ToolSpec, tool_error, tool_ok
from kimi.interfaces.embed.callbacks import call_function

logger = logging.getLogger("kimi.embed")
F = TypeVar("F", bound=Callable[..., object])

_ARGUMENTS: Final = re.compile(r"^(Args|Arguments|Parameters):\s*$", re.MULTILINE)
_SECTION: Final = re.compile(
    r"^(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$.*", re.MULTILINE | re.DOTALL
)
_ENTRY: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_MARK: Final = "__kimi_tool__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str = "", ask: bool = False, read_only: bool = False) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, name: str = "", ask: bool = False, read_only: bool = False) -> Any:
    """Say how a function is used as a tool; without it a function is a tool of its own name that runs unasked.

    With `ask` the user approves each call. A `read_only` function changes nothing: it may run while the model still
    speaks, and in plan mode. The function stays what it is.
    """

    def mark(marked: F) -> F:
        setattr(marked, _MARK, {"name": name, "ask": ask, "read_only": read_only})
        return marked

    return mark(function) if function is not None else mark


class FunctionTool:
    """The tool that calls a function: an async one on the event loop, another in a thread.

    What it returns is the result: text, a `ToolReturnValue`, or anything that can be JSON. An exception is an error
    that the model reads. A parameter that is annotated with `ToolCallContext` gets the context of the call.
    """

    def __init__(self, function: Callable[..., object], *, name: str = "", ask: bool = False, read_only: bool = False):
        if inspect.isclass(function) or not hasattr(function, "__name__"):
            raise ConfigError(f"{function!r} is no tool: give a function, or an object with `spec` and `prepare`.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"The tool '{function.__name__}' yields, but a result comes as a whole: return a list.")
        self._function = function
        self._ask = ask
        self._name = name or function.__name__
        summary, described = _read_docstring(inspect.getdoc(function) or "")
        if not summary:
            raise ConfigError(f"The tool '{self._name}' has no docstring: the model must be told what it does.")
        self._arguments, self._parameters, self._context_parameter = _build_arguments(self._name, function, described)
        schema = _without_titles(self._arguments.model_json_schema())
        self.spec = ToolSpec(self._name, summary, {"properties": {}, **schema}, read_only)

    @classmethod
    def of(cls, function: Callable[..., object]) -> FunctionTool:
        """Return the tool of a function, as `tool` has marked it. Raises ConfigError for one that cannot be a tool."""
        return cls(function, **getattr(function, _MARK, {}))

    @asynccontextmanager
    async def prepare(self, arguments: JsonObject, context: ToolCallContext) -> AsyncGenerator[PreparedCall, None]:
        """Check the arguments and bind them."""
        try:
            checked = self._arguments.model_validate(arguments)
        except ValidationError as error:
            fault = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            refusal = tool_error(f"Error validating JSON arguments: {fault}", "Invalid arguments")

            async def refuse() -> ToolReturnValue:
                return refusal

            yield PreparedCall(refuse)
            return
        named = {parameter: getattr(checked, field) for field, parameter in self._parameters.items()}
        if self._context_parameter is not None:
            named[self._context_parameter] = context

        async def run() -> ToolReturnValue:
            return await self._call(named)

        yield PreparedCall(run, None if self.spec.read_only and not self._ask else self._propose_action())

    def _propose_action(self) -> ProposedAction:
        if self._ask:
            return ProposedAction(
                f"call {self._name}",
                f"Call `{self._name}`.",
                subject=self._name,
                remember_as=f"function:{self._name}",
            )
        return ProposedAction(
            "external tool", f"Call `{self._name}`.", kind="external", remember_as=f"external:{self._name}"
        )

    async def _call(self, named: dict[str, object]) -> ToolReturnValue:
        try:
            function = cast("Callable[..., Awaitable[object]]", self._function)
            result = _build_result(await call_function(function, **named))
        except Exception as error:
            logger.info("the tool %s raised", self._name, exc_info=error)
            return tool_error(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, "Failed")
        return fit_result_to_budget(result)


def _build_result(returned: object) -> ToolReturnValue:
    match returned:
        case ToolReturnValue():
            return returned
        case None:
            return tool_ok("", "Done.")
        case str():
            return tool_ok(returned)
        case _:
            return tool_ok(to_json(returned, fallback=str).decode())


def _build_arguments(
    name: str, function: Callable[..., object], described: dict[str, str]
) -> tuple[type[BaseModel], dict[str, str], str | None]:
    """Return the model of the arguments, the parameter of each of its fields, and the one that takes the context.

    Parameters are aliases: a field could not be called `_id`, `schema` or `model_config`. Raises ConfigError.
    """
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ConfigError(f"The types of the tool '{name}' cannot be found: {error}") from error
    fields: dict[str, Any] = {}
    parameters: dict[str, str] = {}
    context_parameter = None
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ConfigError(f"The tool '{name}' takes '{parameter}': a tool takes named arguments only.")
        hint = hints.get(parameter.name)
        if hint is None:
            raise ConfigError(f"The parameter '{parameter.name}' of the tool '{name}' has no type: annotate it.")
        if hint is ToolCallContext:
            context_parameter = parameter.name
            continue
        field = f"argument_{number}"
        text = described.get(parameter.name)
        named = Field(alias=parameter.name, description=text) if text else Field(alias=parameter.name)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[field] = (Annotated[hint, named], default)
        parameters[field] = parameter.name
    try:
        model = create_model(name, __config__=ConfigDict(extra="ignore"), **fields)
        model.model_json_schema()
    except Exception as error:
        raise ConfigError(
            f"The types of the tool '{name}' have no JSON Schema: {str(error).splitlines()[0]}"
        ) from error
    return model, parameters, context_parameter


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description of a docstring, and what its section `Args:` says of each parameter."""
    described: dict[str, str] = {}
    if (begin := _ARGUMENTS.search(text)) is not None:
        current = ""
        for line in text[begin.end() :].splitlines():
            if line.strip() and not line.startswith(" "):
                break  # the next section
            indent = len(line) - len(line.lstrip())
            entry = _ENTRY.match(line) if indent <= 4 else None
            if entry is not None:
                current = entry[1]
                described[current] = entry[2].strip()
            elif current and line.strip():
                described[current] = f"{described[current]} {line.strip()}".strip()
    return _SECTION.sub("", text).strip(), described


def _without_titles(schema: Any) -> Any:
    """Return a schema without the titles that pydantic makes up from names; a property may be called `title`."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    items = cast("dict[str, Any]", schema)
    return {
        key: {name: _without_titles(one) for name, one in value.items()}
        if key in ("properties", "$defs")
        else _without_titles(value)
        for key, value in items.items()
        if not (key == "title" and isinstance(value, str))
    }
