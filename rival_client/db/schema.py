"""The metadata that all tables share, and the form of the constraint that says which rows are possible.

`rival_client.db` imports all tables; with this module alone the metadata is empty.
"""

from __future__ import annotations

from sqlalchemy import MetaData

metadata = MetaData()


def one_of_statuses(values: tuple[str, ...]) -> str:
    return f"status IN ({', '.join(repr(v) for v in values)})"


def possible(open_: tuple[str, ...], if_open: str, ended: tuple[str, ...], if_ended: str) -> str:
    """Ended if and only if `completed_at` is set; what has ended is quiet. One short constraint instead of several:
    Postgres parses each again for every statement, and seven of them cost as much as the rest of a step's commit.
    """
    return (
        f"CASE WHEN completed_at IS NULL THEN {one_of_statuses(open_)} AND ({if_open}) "
        f"ELSE ring_at IS NULL AND {one_of_statuses(ended)} AND ({if_ended}) END"
    )
