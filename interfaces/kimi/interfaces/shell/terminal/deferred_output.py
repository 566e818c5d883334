"""Terminal output that is deferred until a whole frame is drawn."""

from __future__ import annotations

import logging
from typing import TextIO

from prompt_toolkit.output.vt100 import Vt100_Output

logger = logging.getLogger(__name__)


class DeferredOutput(Vt100_Output):
    """Writes nothing while `is_deferred`, so that printed blocks and the screen below them arrive in one write."""

    is_deferred = False

    @classmethod
    def for_terminal(cls, stdout: TextIO, term: str | None) -> DeferredOutput:
        """Return the output of a terminal. It never asks for the cursor's position, because slow lines answer late."""
        plain = Vt100_Output.from_pty(stdout, term=term)
        return cls(stdout, plain.get_size, term=term, enable_cpr=False)

    def flush(self) -> None:
        """Write the buffer, unless output is deferred.

        A terminal that went away is not an error here: the running work must still end in order.
        """
        if self.is_deferred:
            return
        try:
            super().flush()
        except OSError as error:
            logger.info("the terminal takes nothing: %s", error)
