"""Joins modules for browsers: a module with everything it imports becomes one file, so that a page loads two files
instead of dozens. This needs no build tool, and the sources stay plain modules.

The application's file has a register of modules. Each module is a function there that runs once, whichever file
contains it; the file of a page has the modules that the application's file lacks.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

APPLICATION = "app.js"
_NAMES = r"\{(?P<names>[^}]*)\}"
_IMPORT = re.compile(rf'\bimport ?(?P<default>\w+)?,? ?(?:{_NAMES})? ?from ?"(?P<of>\.[^"]+)";?')
_LATER = re.compile(r'\bimport\("(\.[^"]+)"\)')
_PASSED_ON = re.compile(rf'\bexport ?{_NAMES} ?from ?"(?P<of>\.[^"]+)";?')
_LISTED = re.compile(rf"\bexport ?{_NAMES};?")
_DEFAULT = re.compile(r"\bexport default function ?(?P<name>\w*)")
_DECLARED = re.compile(r"^export (?P<what>(?:async function|function|const|class) (?P<name>\w+))", re.MULTILINE)
_REGISTER = """const $made = new Map();
export const $need = (name) => $made.get(name);
export const $define = (name, make) => { if (!$made.has(name)) $made.set(name, make()); };
"""


def joined(sources: Mapping[str, str]) -> dict[str, str]:
    """The files of the application and of each module that another one imports only when it is needed."""
    if APPLICATION not in sources:
        return {}
    core = needed(sources, APPLICATION)
    made = {APPLICATION: _REGISTER + _definitions(sources, core, APPLICATION)}
    for entry in sorted({one for name in sources for one in _imported(sources, name, _LATER)} - set(core)):
        beyond = [name for name in needed(sources, entry) if name not in core + _there(sources, entry)]
        register = f'import {{ $define, $need }} from "{_relative(APPLICATION, entry)}";\n'
        made[entry] = register + _definitions(sources, beyond, entry) + _exports_of(entry, sources[entry])
    return made


def _there(sources: Mapping[str, str], entry: str) -> list[str]:
    """The modules that are in the browser whenever this one is asked for: those of the only page that imports it."""
    pages = [name for name in sources if entry in _imported(sources, name, _LATER)]
    return needed(sources, pages[0]) if len(pages) == 1 else []


def alone(sources: Mapping[str, str], entry: str) -> str:
    """A module with everything it needs, as a script that needs no other file."""
    return _REGISTER + _definitions(sources, needed(sources, entry), entry)


def needed(sources: Mapping[str, str], entry: str) -> list[str]:
    """The modules that a module imports, in the order of execution; the module itself is the last."""
    found: dict[str, None] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        if name not in found:
            for other in _imported(sources, name, _IMPORT, _PASSED_ON):
                add(other, (*above, name))
            found[name] = None

    add(entry, ())
    return list(found)


def _imported(sources: Mapping[str, str], name: str, *patterns: re.Pattern[str]) -> Iterator[str]:
    for pattern in patterns:
        for match in pattern.finditer(sources[name]):
            other = _resolved(name, match["of"] if "of" in pattern.groupindex else match[1])
            if other in sources:
                yield other


# -- one module -------------------------------------------------------------------------------------------


def _definitions(sources: Mapping[str, str], names: Sequence[str], entry: str) -> str:
    return "".join(f'$define("{name}", () => {{\n{_body(name, sources[name], entry)}\n}});\n' for name in names)


def _body(name: str, source: str, entry: str) -> str:
    """The module as the body of a function that returns what it exports. `entry`: the file that it will be in."""
    exports: dict[str, str] = {}

    def passed_on(match: re.Match[str]) -> str:
        of = f'$need("{_resolved(name, match["of"])}")'
        exports.update({exported: f"{of}.{own}" for own, exported in _pairs(match["names"])})
        return ""

    def listed(match: re.Match[str]) -> str:
        exports.update({exported: own for own, exported in _pairs(match["names"])})
        return ""

    def by_default(match: re.Match[str]) -> str:
        exports["default"] = match["name"] or "$default"
        return f"function {match['name']}" if match["name"] else "const $default = function"

    def declared(match: re.Match[str]) -> str:
        exports[match["name"]] = match["name"]
        return match["what"]

    text = _IMPORT.sub(lambda match: _taken(name, match), source)
    text = _LATER.sub(lambda match: f'import("{_relative(_resolved(name, match[1]), entry)}")', text)
    for pattern, replaced in (
        (_PASSED_ON, passed_on),
        (_LISTED, listed),
        (_DEFAULT, by_default),
        (_DECLARED, declared),
    ):
        text = pattern.sub(replaced, text)
    return f"{text}\nreturn {{ {', '.join(f'{exported}: {own}' for exported, own in exports.items())} }};"


def _taken(name: str, match: re.Match[str]) -> str:
    """An import as a declaration."""
    pairs = [("default", match["default"])] if match["default"] else []
    pairs += _pairs(match["names"] or "")
    names = ", ".join(f"{own}: {exported}" for own, exported in pairs)
    return f'const {{ {names} }} = $need("{_resolved(name, match["of"])}");'


def _pairs(names: str) -> list[tuple[str, str]]:
    """`a, b as c` as pairs of the name there and the name here."""
    parts = [part.strip() for part in names.split(",") if part.strip()]
    return [(part.partition(" as ")[0], part.partition(" as ")[2] or part) for part in parts]


def _exports_of(entry: str, source: str) -> str:
    names = [match["name"] for match in _DECLARED.finditer(source)]
    own = f'const $own = $need("{entry}");\n'
    default = "export default $own.default;\n" if _DEFAULT.search(source) else ""
    return own + default + (f"export const {{ {', '.join(names)} }} = $own;\n" if names else "")


def _resolved(name: str, written: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), written))


def _relative(name: str, entry: str) -> str:
    found = posixpath.relpath(name, posixpath.dirname(entry) or ".")
    return found if found.startswith(".") else f"./{found}"
