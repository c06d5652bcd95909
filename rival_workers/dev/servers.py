"""The servers of the embedded stack, one at a time, for whoever wants to break them: chaos tests."""

from __future__ import annotations

from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.errors import StackError
from rival_workers.dev.postgres_server import PostgresServer
from rival_workers.dev.server import Server

__all__ = ["BrokerServer", "PostgresServer", "Server", "StackError"]
