"""Links from the dashboard to other tools: templates of addresses, checked when given. The page fills them in."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from rival_client.url_rules import Url

#: What a link may name, in braces.
_FIELDS = {"run_id", "workflow", "step"}


def page_links(text: str) -> dict[str, str]:
    """The links of a setting: name -> template. ValueError if one is not of that form."""
    links = dict(one.split("=", 1) for one in text.split())
    if not all(name and is_link(template) for name, template in links.items()):
        raise ValueError("a link without a name, or to something else than a page")
    return links


def is_link(template: str) -> bool:
    try:
        parts = urlsplit(template)
    except ValueError:
        return False
    is_plain = not (parts.username or parts.password or "{" in parts.netloc)
    named = re.findall(r"\{(.*?)\}", template)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain and _FIELDS.issuperset(named)


def _are_links(text: str) -> bool:
    page_links(text)
    return True


PAGE_LINKS = Url(
    "a list of links with spaces between them: give Logs=https://logs.example.com/?run={run_id}&step={step}, without "
    "passwords; {workflow} can be named, too",
    _are_links,
)
