"""Adapters that only the shell needs: part of the composition root, like `tool_adapters`."""

from __future__ import annotations

from collections.abc import Sequence

from kimi.application.ports import ChatModel


def walk_files(directory: str) -> Sequence[str]:
    """The files below a directory that no ignore file leaves out, relative to it; at most 1000."""
    from kimi.infrastructure.file_listing import walk_files as walk

    return walk(directory)


def demo_model() -> ChatModel:
    """The model that needs no account."""
    from kimi.infrastructure.models.demo import DemoModel

    return DemoModel()
