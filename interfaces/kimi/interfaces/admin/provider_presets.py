"""Providers that `kimi setup` knows by name: data only. Every type of provider has a preset of its own name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ProviderPreset:
    """What need not be asked. An empty `base_url` or `model` has no sensible default; the context size is in tokens.

    `variables` are what the provider takes from its `env` table, with what they hold.
    """

    name: str
    title: str
    type: str
    base_url: str = ""
    needs_key: bool = True
    model: str = ""
    context_size: int = 131_072
    capabilities: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


_SEES_AND_THINKS: Final = ("image_in", "thinking", "video_in")

PRESETS: Final = (
    ProviderPreset(
        "kimi", "Kimi (Moonshot AI)", "kimi", "https://api.moonshot.ai/v1", True, "kimi-k2-thinking", 262_144
    ),
    ProviderPreset("kimi-cn", "Kimi in China", "kimi", "https://api.moonshot.cn/v1", True, "kimi-k2-thinking", 262_144),
    ProviderPreset(
        "kimi-code", "Kimi Code", "kimi", "https://api.kimi.com/coding/v1", True, "kimi-for-coding", 262_144
    ),
    ProviderPreset(
        "anthropic",
        "Anthropic",
        "anthropic",
        "https://api.anthropic.com",
        context_size=200_000,
        capabilities=("image_in", "thinking"),
    ),
    ProviderPreset(
        "openai_responses",
        "OpenAI",
        "openai_responses",
        "https://api.openai.com/v1",
        context_size=200_000,
        capabilities=("image_in",),
    ),
    ProviderPreset(
        "gemini",
        "Google Gemini",
        "gemini",
        "https://generativelanguage.googleapis.com",
        context_size=1_000_000,
        capabilities=_SEES_AND_THINKS,
    ),
    ProviderPreset(
        "vertexai",
        "Google Vertex AI",
        "vertexai",
        "https://aiplatform.googleapis.com",
        needs_key=False,
        context_size=1_000_000,
        capabilities=_SEES_AND_THINKS,
        variables=(
            ("GOOGLE_CLOUD_PROJECT", "Google Cloud project"),
            ("GOOGLE_CLOUD_LOCATION", "Google Cloud location"),
        ),
    ),
    ProviderPreset("deepseek", "DeepSeek", "openai_legacy", "https://api.deepseek.com/v1", True, "deepseek-chat"),
    ProviderPreset("openrouter", "OpenRouter", "openai_legacy", "https://openrouter.ai/api/v1"),
    ProviderPreset(
        "ollama", "Ollama, on this machine", "openai_legacy", "http://127.0.0.1:11434/v1", False, "", 32_768
    ),
    ProviderPreset(
        "lmstudio", "LM Studio, on this machine", "openai_legacy", "http://127.0.0.1:1234/v1", False, "", 32_768
    ),
    ProviderPreset("vllm", "vLLM, on this machine", "openai_legacy", "http://127.0.0.1:8000/v1", False),
    ProviderPreset(
        "llama.cpp", "llama.cpp, on this machine", "openai_legacy", "http://127.0.0.1:8080/v1", False, "", 32_768
    ),
    ProviderPreset("openai_legacy", "Another server with OpenAI's chat completions", "openai_legacy", needs_key=False),
)
"""In the order in which they are offered. Names of models are suggestions: providers change them."""

API_KEY_VARIABLES: Final[Mapping[str, str]] = {
    "kimi": "KIMI_API_KEY",
    "openai_legacy": "OPENAI_API_KEY",
    "openai_responses": "OPENAI_API_KEY",
}
"""Provider type -> the variable whose key is used, at each start, instead of the configured one (runtime spec 2.5)."""

PLACEHOLDER_KEY: Final = "none"
"""What stands for the key of a server that wants none: some refuse requests without any."""


def find_preset(name: str) -> ProviderPreset | None:
    """The preset with this name."""
    return next((preset for preset in PRESETS if preset.name == name), None)
