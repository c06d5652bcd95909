"""Brings the JavaScript libraries of the dashboard into the repository. For maintainers: it needs npm.

`python deploy/vendor_dashboard.py` packs the versions of `PACKAGES` with npm, compares the digest of each file with
`vendor.lock`, makes bare imports relative, cuts the comments that name source maps, and keeps the licences. With
`--update` it writes the lock instead. The result is committed: neither users nor the tests need npm.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATIC = ROOT / "rival_workers/dashboard/static/vendor"
TESTS = ROOT / "tests/browser/vendor"
LOCK = STATIC / "vendor.lock"

#: Package, its version, the file in it, and where that goes.
PACKAGES = (
    ("preact", "11.2.0", "dist/preact.mjs", STATIC / "preact.js"),
    ("preact", "11.2.0", "hooks/dist/hooks.mjs", STATIC / "hooks.js"),
    ("@preact/signals-core", "1.14.5", "dist/signals-core.module.js", STATIC / "signals-core.js"),
    ("@preact/signals", "2.11.4", "dist/signals.module.js", STATIC / "signals.js"),
    ("htm", "3.1.1", "dist/htm.mjs", STATIC / "htm.js"),
    ("axe-core", "4.14.0", "axe.min.js", TESTS / "axe.min.js"),
)
IMPORTS = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
_FROM = re.compile(rf'\bfrom"({"|".join(map(re.escape, IMPORTS))})"')
_SOURCE_MAP = re.compile(r"\s*//# sourceMappingURL=\S+\s*$")


def main(update: bool) -> None:
    found: dict[str, str] = {}
    known = json.loads(LOCK.read_text()) if LOCK.exists() else {}
    for package, version, name, target in PACKAGES:
        files = packed(package, version)
        source = files[name]
        key = f"{package}@{version}/{name}"
        found[key] = hashlib.sha256(source).hexdigest()
        if not update and known.get(key) != found[key]:
            raise SystemExit(f"{key}: its digest is not the one in {LOCK}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_SOURCE_MAP.sub("", relative(source.decode())) + "\n")
        licence = target.with_name(f"LICENSE.{package.removeprefix('@').replace('/', '-')}")
        licence.write_bytes(files["LICENSE"].strip() + b"\n")
        print(target.relative_to(ROOT), len(target.read_bytes()))
    if update:
        LOCK.write_text(json.dumps(found, indent=2) + "\n")


def packed(package: str, version: str) -> dict[str, bytes]:
    """The files of a package by name."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", f"{package}@{version}"]
        printed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
        with tarfile.open(Path(folder, printed.split()[-1])) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            read = {member.name.partition("/")[2]: archive.extractfile(member) for member in members}
            return {name: file.read() for name, file in read.items() if file is not None}


def relative(source: str) -> str:
    return _FROM.sub(lambda found: f'from"{IMPORTS[found[1]]}"', source)


if __name__ == "__main__":
    main("--update" in sys.argv)
