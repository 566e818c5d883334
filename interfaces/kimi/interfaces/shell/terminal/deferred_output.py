"""The terminal's output, held back until a whole picture is there."""

from __future__ import annotations

import logging
from typing import TextIO

from prompt_toolkit.output.vt100 import Vt100_Output

logger = logging.getLogger(__name__)


class DeferredOutput(Vt100_Output):
    """While `held`, nothing is written: what is printed and what is drawn below it arrive together."""

    is_deferred = False

    @classmethod
    def for_terminal(cls, stdout: TextIO, term: str | None) -> DeferredOutput:
        """The output of a terminal, which is never asked where its cursor is: slow lines answer late."""
        plain = Vt100_Output.from_pty(stdout, term=term)
        return cls(stdout, plain.get_size, term=term, enable_cpr=False)

    def flush(self) -> None:
        """Write what has gathered, unless it is held. A terminal that went away gets nothing, and that is no failure:
        what runs is ended in order all the same.
        """
        if self.is_deferred:
            return
        try:
            super().flush()
        except OSError as error:
            logger.info("the terminal takes nothing: %s", error)
