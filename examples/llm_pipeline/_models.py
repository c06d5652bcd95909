"""Language models: over HTTP if LLM_PROVIDER_URL is set, otherwise stand-ins for a demonstration."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request

from rival_workers import StepError


class Overloaded(StepError):
    """What an API says with 429 or 5xx: later it may work, and not before the header Retry-After says so."""

    def __init__(self, message: str, retry_after: str | None = None) -> None:
        super().__init__(message, behavior="retry", retry_after=retry_after)


class BadPrompt(Exception):
    """What an API says with 400: it will never work."""


def ask(model: str, prompt: str, attempt: int) -> str:
    url = os.environ.get("LLM_PROVIDER_URL")
    return _over_http(url, model, prompt) if url else _stand_in(model, prompt, attempt)


def _over_http(url: str, model: str, prompt: str) -> str:
    body = json.dumps({"model": model, "prompt": prompt}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return str(json.load(response)["text"])
    except urllib.error.HTTPError as error:
        if error.code == 400:
            raise BadPrompt(f"{model}: HTTP 400") from error
        raise Overloaded(f"{model}: HTTP {error.code}", error.headers.get("Retry-After")) from error
    except (OSError, ValueError, KeyError) as error:
        # Refused, cut off in the middle, or not the JSON that was promised.
        raise Overloaded(f"{model}: {type(error).__name__}: {error}") from error


def _stand_in(model: str, prompt: str, attempt: int) -> str:
    """The big one is overloaded at the first try; with "outage" in the prompt, at every one."""
    if model == "big" and ("outage" in prompt or attempt < 2):
        raise Overloaded("too many requests")
    return f"[{model}] {prompt[:60]}"
