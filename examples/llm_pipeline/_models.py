"""Two language models: over HTTP if LLM_PROVIDER_URL is set, otherwise stand-ins for a demonstration."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request


class Overloaded(Exception):
    """What an API says with 429 or 503: later it may work."""


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
        raise (BadPrompt if error.code == 400 else Overloaded)(f"{model}: HTTP {error.code}") from error
    except urllib.error.URLError as error:
        raise Overloaded(f"{model}: {error.reason}") from error


def _stand_in(model: str, prompt: str, attempt: int) -> str:
    """The big one is overloaded at the first try; with "outage" in the prompt, at every one."""
    if model == "big" and ("outage" in prompt or attempt < 2):
        raise Overloaded("too many requests")
    return f"[{model}] {prompt[:40]}"
