"""The statements about rules of the fleet. They take an open connection.

The row of the rulebook is locked first, so that two changes at once give two versions. Its number also grows when a
rule expires: a process compares one number.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, or_, select, update

from rival_client.db.fleet_tables import rulebook, rules
from rival_client.db.types import after, now
from rival_client.model.policies.matchers import load_matcher
from rival_client.model.policies.policy_rules import Rule
from rival_client.model.policies.rulebook import FleetRule, Rulebook

#: More rules than this are a mistake: every process keeps all of them.
MAX_RULES = 1000
#: Expired rules are counted in the lower digits of a version.
_CHANGES = 1_000_000


def version_number() -> ColumnElement[int]:
    """The version of the rules, as a scalar subquery: it changes with every change, and when a rule expires."""
    version = select(rulebook.c.version).scalar_subquery()
    expired = select(func.count()).select_from(rules).where(rules.c.expires_at <= now()).scalar_subquery()
    return func.coalesce(version, 0) * _CHANGES + expired


def read_rulebook(connection: Connection) -> Rulebook:
    """The rules that have not expired, the newest first."""
    version = connection.scalar(select(version_number()))
    found = list_rules(connection)
    return Rulebook(int(version or 0), tuple(one.rule for one in found), {one.id: one for one in found})


def list_rules(connection: Connection) -> list[FleetRule]:
    """Those that have not expired, the newest first."""
    live = or_(rules.c.expires_at.is_(None), rules.c.expires_at > now())
    return [_of(row) for row in connection.execute(select(rules).where(live).order_by(rules.c.id.desc()))]


def _of(row: Any) -> FleetRule:
    rule = Rule(load_matcher(row.match), row.options, row.id)
    return FleetRule(row.id, rule, row.reason, row.author, row.created_at, row.expires_at)


def set_rule(
    connection: Connection, rule: Rule, reason: str | None, author: str | None, expires: dt.datetime | float | None
) -> FleetRule | None:
    """None: there are too many. Rules that have expired are deleted."""
    _change(connection)
    connection.execute(delete(rules).where(rules.c.expires_at <= now()))
    if (connection.scalar(select(func.count()).select_from(rules)) or 0) >= MAX_RULES:
        return None
    values = {"match": rule.match.dump(), "options": dict(rule.options), "reason": reason, "author": author}
    expires_at = after(expires) if isinstance(expires, float) else expires
    row = connection.execute(
        insert(rules).values(**values, created_at=now(), expires_at=expires_at).returning(*rules.c)
    ).one()
    return _of(row)


def remove_rule(connection: Connection, rule_id: int) -> bool:
    _change(connection)
    return connection.execute(delete(rules).where(rules.c.id == rule_id)).rowcount == 1


def _change(connection: Connection) -> None:
    changed = connection.execute(update(rulebook).where(rulebook.c.id == 1).values(version=rulebook.c.version + 1))
    if changed.rowcount != 1:
        connection.execute(insert(rulebook).values(id=1, version=1))
