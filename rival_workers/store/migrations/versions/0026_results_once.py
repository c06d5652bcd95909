"""Large results are written once: a history entry names the row of the step that has the result.

Before such a row changes or goes, the triggers put its result into the entries that name it.
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_FUNCTION = """
CREATE FUNCTION rival_keep_result() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE rival_history
    SET detail = ('{"result":' || OLD.result::text || ',' || substr(ltrim(detail::text), 2))::json
    WHERE run_id = OLD.run_id AND what IN ('completed', 'skipped') AND detail -> 'result' IS NULL
      AND coalesce(detail ->> 'result_of', path) = OLD.path
      AND (detail ->> 'result_token')::int = OLD.execution_token;
    RETURN NULL;
END
$$
"""
_IS_NAMED = """
OLD.result IS NOT NULL AND OLD.status IN ('completed', 'skipped') AND octet_length(OLD.result::text) > 2000
"""


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(_FUNCTION)
    op.execute(
        "CREATE TRIGGER rival_keep_deleted_result AFTER DELETE ON rival_steps "
        f"FOR EACH ROW WHEN ({_IS_NAMED}) EXECUTE FUNCTION rival_keep_result()"
    )
    op.execute(
        "CREATE TRIGGER rival_keep_changed_result AFTER UPDATE ON rival_steps FOR EACH ROW "
        f"WHEN (OLD.execution_token <> NEW.execution_token AND {_IS_NAMED}) EXECUTE FUNCTION rival_keep_result()"
    )
