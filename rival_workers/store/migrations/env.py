"""Alembic's entry point: migrates on the connection that `upgrade` passes, within its transaction."""

from alembic import context

from rival_client.db import metadata
from rival_workers.store.migrations import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
