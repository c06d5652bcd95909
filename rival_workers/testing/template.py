"""A database for each lab in a millisecond: migrated once per process, then copied."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rival_client.db.database import Database
from rival_workers.store import migrations


@cache
def migrated() -> bytes:
    """An empty SQLite database with Rival's tables."""
    with TemporaryDirectory(prefix="rival-lab-") as directory:
        file = Path(directory) / "template.db"
        database = Database(f"sqlite:///{file}", durable=False)
        migrations.upgrade(database)
        # The last connection to leave brings everything into the file.
        database.dispose()
        return file.read_bytes()
