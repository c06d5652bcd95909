"""Rejects words that hide the subject of a sentence, and metaphors that have a plain name.

Write like the documentation of Postgres or Go: subject, verb, object; present tense; the term that a maintainer greps
for. The names of functions, classes, parameters and variables follow the same rules, and so do the comments of `.sql`
files and the texts of the dashboard. Code spans and fenced blocks of pages are exempt, so a page can name a column or
quote a word.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.documents import Page, pages, project_pages
from tests.support.workers import ROOT

#: This file quotes the words; migrations are never edited.
EXEMPT = ("tests/architecture/test_language.py", "rival_workers/store/migrations/versions/")


@dataclass(frozen=True)
class Rule:
    words: str
    instead: str

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.words, re.IGNORECASE)


#: What users name, and may misspell.
_NOUNS = "(?:run|step|workflow|version|limit|schedule|rule|file|directory|user|event|open|bulk|value at)"

RULES = (
    Rule(r"\bwho(?:so)?ever\b", "name the subject: the caller, the producer, the transaction that …"),
    Rule(r"\b(?:some|any|every)body\b|\b(?:some|any|every)one\b", "name it: an external system, a worker, a client"),
    Rule(r"\bnobody\b|\bno one\b", "say what does not happen: 'no step waits', 'no executor holds it'"),
    Rule(r"\banew\b", "again"),
    Rule(r"\blest\b", "so that … not"),
    Rule(r"\b(?:tells?|told|telling)\b", "record, report, return, log; history entries are 'recorded'"),
    Rule(r"(?<!there )\b(?:is|are|was|were) no(?! longer)\b", "'X is not a Y', or 'invalid Y X'"),
    Rule(rf"\bthere (?:is|are|was|were) no (?:such|{_NOUNS})\b", "'unknown limit X', 'X does not exist'"),
    Rule(r"\bno more\b(?! than\b)", "no longer, not … any more"),
    Rule(r"\bamnesia\b|\bforg(?:o|e)t(?:s|ten|ting)?\b", "broker data loss; delete, drop, ignore"),
    Rule(r"\b(?:rings?|rung|ringing|bells?)\b(?! buffer)", "publish a message; the run-end notification"),
    Rule(r"\bhot ?lines?\b", "prepared statements"),
    Rule(r"\bbur(?:y|ies|ied|ying)\b", "expire"),
    Rule(r"\bdeaf\b", "stalled consumer"),
    Rule(r"\bsigns? of life\b", "heartbeat"),
    Rule(r"\bunw(?:ind|inds|inding|ound)\b", "compensate, compensating"),
    Rule(r"\b(?:one|each|this|every|same|its|per|of a|more than \d+) turns?\b|\bturns of\b", "iteration, item"),
    Rule(r"\bsuch as (?:do|are|have|stand)\b", "'only runs that …'"),
    Rule(r"\bwhatever becomes\b", "name the outcomes"),
    Rule(r"\bof no account\b|\bheld to be\b|\bbound to\b", "'has no effect'; 'counts as'; 'will'"),
    Rule(r"\b(?:goes|go|went|gone|going) its own way\b", "'is independent of …'"),
)


def problems(text: str, first_line: int = 1) -> Iterator[str]:
    # Names in code spans are those of the code.
    text = re.sub(r"`[^`\n]*`", lambda found: " " * len(found[0]), text)
    for rule in RULES:
        for found in rule.pattern.finditer(text):
            line = first_line + text.count("\n", 0, found.start())
            yield f"line {line}: {found[0]!r}. Write instead: {rule.instead}"


# -- pages --------------------------------------------------------------------------------------------------------


def prose(page: Page) -> str:
    """The page with its fenced blocks, code spans, HTML comments and link targets blanked; lines keep their numbers."""
    hidden = r"^```.*?^```|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)"
    return re.sub(hidden, lambda found: re.sub(r"[^\n]", " ", found[0]), page.text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [*pages(), *project_pages()], ids=lambda page: page.name)
def test_pages_are_in_plain_language(page: Page) -> None:
    found = list(problems(prose(page)))
    assert not found, f"{page.name}:\n" + "\n".join(found)


# -- code ---------------------------------------------------------------------------------------------------------


def code_files() -> list[Path]:
    folders = ("rival_client", "rival_workers", "tests", "benchmarks", "examples", "docs")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if not _is_exempt(path)]


def _is_exempt(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix().startswith(EXEMPT)


def problems_in(path: Path) -> list[str]:
    return [problem for text, line in texts(path) for problem in problems(text, line)]


def texts(path: Path) -> Iterator[tuple[str, int]]:
    """Comments, docstrings and strings that are sentences, each with its first line."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]
    in_tests = path.is_relative_to(ROOT / "tests")
    tree = ast.parse(source)
    docstrings = {id(one) for one in _docstrings(tree)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        # The strings of tests are data: only what they say about themselves is checked.
        # Statements have the names of columns, as `rings`.
        is_sql = bool(re.search(r"\b(?:INSERT INTO|UPDATE|SELECT|DELETE FROM)\b", node.value))
        if id(node) in docstrings or (not in_tests and not is_sql and node.value.count(" ") >= 2):
            yield node.value, node.lineno


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                yield first.value


@pytest.mark.parametrize("path", code_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_comments_docstrings_and_messages_are_in_plain_language(path: Path) -> None:
    found = problems_in(path)
    assert not found, f"{path.relative_to(ROOT)}:\n" + "\n".join(found)


# -- names --------------------------------------------------------------------------------------------------------

#: The columns and the setting that keep their names, on their own or as a part of another name.
KEPT_NAMES = re.compile(r"(?:^|(?<= ))(?:ring at|rings|ring grace)(?= |$)")


def names_in(path: Path) -> Iterator[tuple[str, int]]:
    """Names that the file gives, as words, each with its line. The variables of tests are data."""
    in_tests = path.is_relative_to(ROOT / "tests")
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield _words(name), node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                if not in_tests:
                    yield _words(name), node.lineno


def _words(name: str) -> str:
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").replace("_", " ")
    return KEPT_NAMES.sub("", apart)


@pytest.mark.parametrize("path", code_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_are_in_plain_language(path: Path) -> None:
    found = [problem for name, line in names_in(path) for problem in problems(name, line)]
    assert not found, f"{path.relative_to(ROOT)}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ring_all", "ring all"),
        ("RingTimes", "ring times"),
        ("_ring_at", ""),
        ("is_held", "is held"),
        ("first_rings", "first "),
    ],
)
def test_names_are_read_as_words(name: str, words: str) -> None:
    assert _words(name) == words


# -- other files --------------------------------------------------------------------------------------------------

#: Comments of SQL; texts and comments of the dashboard's pages.
COMMENT_OR_TEXT = {
    ".sql": re.compile(r"--.*"),
    ".js": re.compile(r"//.*|/\*.*?\*/|\"[^\"\n]*\"|`[^`]*`", re.DOTALL),
    ".html": re.compile(r".+"),
}


def other_files() -> list[Path]:
    found = (path for path in (ROOT / "rival_workers").rglob("*") if path.suffix in COMMENT_OR_TEXT)
    return sorted(path for path in found if "vendor" not in path.parts)


@pytest.mark.parametrize("path", other_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_comments_of_sql_and_texts_of_pages_are_in_plain_language(path: Path) -> None:
    text = path.read_text()
    parts = (
        (found[0].strip("`"), text.count("\n", 0, found.start()) + 1)
        for found in COMMENT_OR_TEXT[path.suffix].finditer(text)
    )
    found = [problem for part, line in parts for problem in problems(part, line)]
    assert not found, f"{path.relative_to(ROOT)}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_clean"),
    [
        ("Whoever calls it waits.", False),
        ("The broker rang a bell.", False),
        ("This is no token.", False),
        ("There is no run 'x'.", False),
        ("There is no such file.", False),
        ("There is no index on it.", True),
        ("It is no longer needed.", True),
        ("No more than 3 attempts.", True),
        ("The ring buffer is full.", True),
        ("In a string, the strings.", True),
    ],
)
def test_the_rules_find_what_they_should(text: str, is_clean: bool) -> None:
    assert (not list(problems(text))) == is_clean


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for path in sorted((ROOT / name).glob("*.py")):
            for problem in problems_in(path):
                print(f"{path.relative_to(ROOT)}: {problem}")
