"""System prompts of agent files: templates with `${NAME}` and `{% %}` (runtime spec 6.2).

The template library is imported when the first such prompt is rendered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from kimi.domain.errors import ConfigError
from kimi.infrastructure.definitions.agent_files import MAX_PROMPT_BYTES
from kimi.infrastructure.definitions.project_files import PromptFiles, name_refusal


def render_prompt(path: str, arguments: Mapping[str, str], files: PromptFiles) -> str:
    """Render the prompt in `path` with its arguments, without white space around it.

    A template may include files whose real path lies in its own directory, and nothing else. It runs in a sandbox,
    because it is data that the user may have downloaded.

    Raises:
        ConfigError: an argument is missing, or the file is not a valid template.
    """
    from jinja2 import FunctionLoader, StrictUndefined, TemplateError, TemplateNotFound, UndefinedError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    directory = os.path.dirname(path)

    def load_included(name: str) -> str | None:
        included = os.path.join(directory, name)
        if not os.path.isfile(included):
            return None
        try:
            return files.read(included, MAX_PROMPT_BYTES, os.path.realpath(directory))
        except (OSError, ValueError) as error:
            raise TemplateNotFound(name, f"{name} cannot be included: {name_refusal(error)}") from None

    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load_included),
        undefined=StrictUndefined,
        variable_start_string="${",
        variable_end_string="}",
        keep_trailing_newline=True,
    )
    try:
        text = files.read(path, MAX_PROMPT_BYTES, files.find_bound(path))
        return environment.from_string(text.strip()).render(arguments).strip()
    except UndefinedError as error:
        raise ConfigError(f"Missing system prompt arg in {path}: {error}") from None
    except (TemplateError, OSError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"Invalid system prompt template: {path}: {error}") from None
