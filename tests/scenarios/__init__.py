"""Scenarios that the test suites of other engines have: Temporal, DBOS, Hatchet and Prefect. Written for this engine,
run through the public API only, in library mode on SQLite and on a fleet on Postgres.
"""
