"""Filters as people type them: what is JSON is that, other words are text, and a filter can be as_arguments again."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import json
import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rival_client import Rival
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.cli.options.filter_options import as_arguments, filter_options
from rival_workers.dashboard.api.filters import RunQuery

heard: list[RunFilter] = []


@click.command()
@filter_options
def listen(chosen: RunFilter) -> None:
    heard.append(chosen)


def read(*words: str) -> RunFilter:
    answer = CliRunner().invoke(listen, words)
    assert answer.exit_code == 0, answer.output
    return heard.pop()


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["customer=7"], {"customer": 7}),
        (["customer=seven"], {"customer": "seven"}),
        (["zip=0150"], {"zip": "0150"}),
        (['zip="150"'], {"zip": "150"}),
        (["ok=true", "gone=null"], {"ok": True, "gone": None}),
        (["a=NaN", "b="], {"a": "NaN", "b": ""}),
        (["a=x=y"], {"a": "x=y"}),
        (["a.b=1", "a.c=[1, 2]"], {"a": {"b": 1, "c": [1, 2]}}),
        (['{"a.b": {"c": 1}}', "d=2"], {"a.b": {"c": 1}, "d": 2}),
    ],
)
def test_a_field_is_taken_as_json_or_as_text(words: list[str], meant: dict[str, Any]) -> None:
    assert read(*(word for one in words for word in ("--input", one))).input == meant


def test_nothing_given_chooses_everything() -> None:
    assert read() == RunFilter()


names = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1)
fields = st.dictionaries(
    names, st.one_of(st.integers(), st.booleans(), st.none(), names, st.lists(st.integers())), min_size=1
)
times = st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))
filters = st.builds(
    RunFilter,
    workflow=st.none() | names,
    status=st.none() | st.just(("failed", "pending")),
    since=st.none() | times,
    input=st.none() | fields,
    error=st.none() | names,
    paused=st.none() | st.booleans(),
)


@given(filters)
def test_a_filter_typed_again_is_the_same_filter(chosen: RunFilter) -> None:
    again = read(*shlex.split(as_arguments(chosen)))
    assert again == chosen
    assert json.dumps(again.input) == json.dumps(chosen.input)


def test_the_client_and_the_dashboard_have_every_field() -> None:
    fields = {field.name for field in dataclasses.fields(RunFilter)}
    paging = {"self", "before", "after", "limit"}
    assert set(inspect.signature(Rival.runs).parameters) - paging == fields
    assert set(RunQuery.model_fields) == fields
    nothing = dict.fromkeys(fields)
    given = nothing | {"workflow": "w", "status": "failed", "since": "1h", "until": "1h", "parent": "r", "error": "x"}
    given |= {
        "ended_since": "1h",
        "ended_until": "1h",
        "paused": True,
        "input": "{}",
        "result": "{}",
        "labels": '{"a": "b"}',
    }
    left_out = [name for name, value in vars(RunQuery(**given).chosen()).items() if value is None]
    assert left_out == [], "fields of the query that do not reach the filter"
