"""What the documentation holds: pages, their fenced blocks with the marks before them, and their links.

A mark is an HTML comment right before a fence. Every ```python block has one:
    <!-- file: workflows/tree.py -->   the block is that file, in the page's own directory
    <!-- run: library -->              runs by itself
    <!-- run: producer -->             runs against real servers and a worker that has the page's files
    <!-- run: no -->                   is not run
    <!-- prints -->                    (a ```text block) what the page's last block before it prints, line by
                                       line; "…" in a line stands for any text, a line "…" for any lines
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from tests.support.workers import ROOT

_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n\n?)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
TOP = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "tests/README.md")
#: Links that also work on a package index, and those in messages, lead to files of the default branch.
ON_GITHUB = "https://github.com/rival-workflows/rival/blob/main/"
_LINK = re.compile(r"(?<!!)\[(?P<label>[^\]]+)\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. `mark` is what stands in the comment before it, "" without one."""

    language: str
    mark: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        return self.mark.removeprefix("file: ") if self.mark.startswith("file: ") else None

    @property
    def run(self) -> str | None:
        return self.mark.removeprefix("run: ") if self.mark.startswith("run: ") else None


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def prose(self) -> str:
        """The text without its fenced blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self) -> Iterator[Block]:
        for found in _FENCE.finditer(self.text):
            line = self.text.count("\n", 0, found.start()) + 1
            yield Block(found["language"], found["mark"] or "", found["text"], line)

    def links(self) -> Iterator[tuple[str, str]]:
        """(label, target)"""
        return ((found["label"], found["target"]) for found in _LINK.finditer(self.prose))

    def section(self, heading: str) -> str | None:
        """The text below a heading, up to the next one of the same level or above."""
        found = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        if found is None:
            return None
        rest = self.text[found.end() :]
        end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
        return rest[: end.start()] if end else rest

    def anchors(self) -> set[str]:
        """As GitHub makes them of headings, and those that are written as `<a id="…">`."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        return made | set(re.findall(r'<a id="([^"]+)">', self.prose))


def pages() -> list[Page]:
    top = [ROOT / name for name in TOP]
    below = [path for folder in ("docs", "examples") for path in sorted((ROOT / folder).rglob("*.md"))]
    return [Page(path) for path in (*top, *below)]


def project_pages() -> list[Page]:
    """Pages for those who change Rival."""
    known = {page.path for page in pages()}
    found = [*ROOT.glob("*.md"), *(ROOT / "tests").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    return [Page(path) for path in sorted(found) if path not in known]


def reference() -> str:
    return "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "reference").glob("*.md")))


def commands(group: click.Command, prefix: str = "") -> dict[str, click.Command]:
    """Every command by its whole name: "db upgrade"."""
    if not isinstance(group, click.Group):
        return {prefix.strip(): group}
    context = click.Context(group)
    # A group that can be called by itself is a command, too.
    found: dict[str, click.Command] = {prefix.strip(): group} if prefix and group.invoke_without_command else {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found |= commands(command, f"{prefix}{name} ")
    return found
