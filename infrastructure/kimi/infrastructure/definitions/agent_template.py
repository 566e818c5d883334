"""System prompts of agent files: templates with `${NAME}` and `{% %}` (runtime spec 6.2).

The template library is imported when the first such prompt is rendered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kimi.domain.errors import ConfigError
from kimi.infrastructure.config.text_file import read_text


def render_prompt(path: str, arguments: Mapping[str, str]) -> str:
    """Render the prompt in `path` with its arguments, without white space around it.

    A template may include files of its own directory and nothing else. It runs in a sandbox, because it is data that
    the user may have downloaded.

    Raises:
        ConfigError: an argument is missing, or the file is not a valid template.
    """
    from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, UndefinedError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(os.path.dirname(path), encoding="utf-8"),
        undefined=StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        keep_trailing_newline=True,
    )
    try:
        return environment.from_string(read_text(path).strip()).render(arguments).strip()
    except UndefinedError as error:
        raise ConfigError(f"Missing system prompt arg in {path}: {error}") from None
    except (TemplateError, OSError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"Invalid system prompt template: {path}: {error}") from None
