"""The statements about rules of the fleet. They take an open connection.

The row of the rulebook is locked first, so that two changes at once give two versions. Its number also grows when a
rule expires: a process compares one number. A rule that is removed expires at that time. Some expired rules stay
stored: the attempts that had them are explained with their reasons.
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
from rival_client.sql.limit_rows import dialect_of

#: More rules than this are a mistake: every process keeps all of them.
MAX_RULES = 1000
#: Expired rules that stay stored.
MAX_EXPIRED = 1000
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
    """The rules that have not expired, newest first."""
    return [_of(row) for row in connection.execute(select(rules).where(_live()).order_by(rules.c.id.desc()))]


def stored_rules(connection: Connection) -> dict[int, FleetRule]:
    """All stored rules by their numbers, also those that have expired."""
    return {row.id: _of(row) for row in connection.execute(select(rules))}


def _live() -> ColumnElement[bool]:
    return or_(rules.c.expires_at.is_(None), rules.c.expires_at > now())


def _of(row: Any) -> FleetRule:
    rule = Rule(load_matcher(row.match), row.options, row.id)
    return FleetRule(row.id, rule, row.reason, row.author, row.created_at, row.expires_at)


def set_rule(
    connection: Connection, rule: Rule, reason: str | None, author: str | None, expires: dt.datetime | float | None
) -> FleetRule | None:
    """Returns None, and adds no rule, if there are too many already."""
    _change(connection)
    expired = select(rules.c.id).where(rules.c.expires_at <= now()).order_by(rules.c.id.desc())
    first_gone = expired.offset(MAX_EXPIRED).limit(1).scalar_subquery()
    connection.execute(delete(rules).where(rules.c.expires_at <= now(), rules.c.id <= first_gone))
    if (connection.scalar(select(func.count()).select_from(rules).where(_live())) or 0) >= MAX_RULES:
        return None
    values = {"match": rule.match.dump(), "options": dict(rule.options), "reason": reason, "author": author}
    expires_at = after(expires) if isinstance(expires, float) else expires
    row = connection.execute(
        insert(rules).values(**values, created_at=now(), expires_at=expires_at).returning(*rules.c)
    ).one()
    return _of(row)


def remove_rule(connection: Connection, rule_id: int) -> bool:
    _change(connection)
    removed = update(rules).where(rules.c.id == rule_id, _live()).values(expires_at=now())
    return connection.execute(removed).rowcount == 1


def _change(connection: Connection) -> None:
    first = dialect_of(connection).insert(rulebook).values(id=1, version=1)
    another = {"version": rulebook.c.version + 1}
    connection.execute(first.on_conflict_do_update(index_elements=["id"], set_=another))
