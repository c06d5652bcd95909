"""The state that all handlers share: the client that reads, the client that acts, and how values are shown."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from rival_client import __version__
from rival_client.api.client import Rival
from rival_client.db.read_only import ReadOnlyDatabase
from rival_client.errors import UnknownWorkflow
from rival_client.sql.workflows import list_workflows, workflow_version
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.bulks import Bulks
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.sessions import Sessions
from rival_workers.dashboard.veil import Veil, secret_names
from rival_workers.engine.policies import Policies, load_policies
from rival_workers.settings import WorkerSettings

if TYPE_CHECKING:
    from rival_workers.dashboard.hub import Hub

T = TypeVar("T")

#: Seconds after which the options of a version are read again.
REREAD_AFTER = 10.0


class Cached:
    """One answer for all viewers, computed again when it is older than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: One for each key: what one workflow needs must not hold up the others.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._found: dict[str, tuple[float, Any]] = {}

    def get(self, compute: Callable[[], T], key: str = "", lasts: Callable[[T], bool] = lambda value: True) -> T:
        """`lasts`: whether the answer may be given again."""
        with self._locks[key]:
            found = self._found.get(key)
            if found is not None and time.monotonic() - found[0] <= self._seconds:
                return cast("T", found[1])
            if len(self._found) > 1000:
                self._found.clear()
            value = compute()
            if lasts(value):
                self._found[key] = (time.monotonic(), value)
            return value


class Board:
    """`rival` acts; `reader` is a client of a database that only reads."""

    version = __version__

    def __init__(self, rival: Rival, sessions: Sessions, options: Options | None = None) -> None:
        self.rival, self.sessions, self.options = rival, sessions, options or Options()
        self.database = ReadOnlyDatabase(self.options.database_url or rival.database.url)
        self.reader = Rival(settings=rival.settings, database=self.database, doorbell=rival._doorbell)
        self.veil = Veil(self.options.redact)
        self.counts, self.fleet = Cached(5.0), Cached(1.0)
        self.bulks = Bulks(rival, may_act=not self.options.read_only)
        #: What the doctor says: it connects to the broker, so one answer for all viewers must do for a while.
        self.checks = Cached(10.0)
        #: Those of the dashboard's own process: they can differ from a worker's.
        self.settings = self.options.settings or WorkerSettings(**vars(rival.settings))
        self.stats, self.typical, self._veils = Cached(60.0), Cached(60.0), Cached(REREAD_AFTER)
        self._read_once = lru_cache(500)(self._read_workflow)
        #: (workflow, version) -> the number of its steps, which never changes.
        self.step_count = lru_cache(5000)(self._step_count)

    @cached_property
    def hub(self) -> Hub:
        # Imported when first used: what it polls is what the handlers answer, and they import this module.
        from rival_workers.dashboard.hub import Hub
        from rival_workers.dashboard.live_polls import Polls

        return Hub(Polls(self))

    def may(self, who: Identity | None, demand: Literal["viewer", "operator", "admin"], writes: bool = True) -> bool:
        return who is not None and who.may(demand) and not (writes and self.options.read_only)

    def veil_of(self, workflow: str, version: str) -> Veil:
        """Hides what the workflow's own schema marks as secret, too."""
        found = self._workflow(workflow, version)
        return self.veil if found is None else found[1]

    def current_veil(self, workflow: str) -> Veil:
        """The veil of the version that new runs take."""
        try:
            return self.veil_of(workflow, self.reader._validator(workflow).workflow.version)
        except UnknownWorkflow:
            return self.veil

    def all_veils(self) -> list[Veil]:
        """The veils of all workflows, each at the version that new runs take."""

        def read() -> list[Veil]:
            with self.database.autocommit() as connection:
                return [self.veil.also(_names(one.input_schema)) for one in list_workflows(connection)]

        return [self.veil, *self._veils.get(read)]

    def wide_veil(self) -> Veil:
        """Hides what any workflow marks as secret: for values that belong to no run, or to several."""

        def read() -> Veil:
            with self.database.autocommit() as connection:
                names = [_names(one.input_schema) for one in list_workflows(connection)]
            return self.veil.also(name for its in names for name in its)

        return self._veils.get(read, "all")

    def policies_of(self, workflow: str, version: str) -> Policies | None:
        """The plan, and the options of its steps."""
        found = self._workflow(workflow, version)
        return None if found is None else found[0]

    def _step_count(self, workflow: str, version: str) -> int:
        policies = self.policies_of(workflow, version)
        return 0 if policies is None else policies.plan.step_count

    def description_of(self, workflow: str, version: str) -> str | None:
        found = self._workflow(workflow, version)
        return None if found is None else found[2]

    def _workflow(self, workflow: str, version: str) -> tuple[Policies, Veil, str | None] | None:
        """The plan of a version never changes, but its options may: they are read again now and then."""
        return self._read_once(workflow, version, int(time.monotonic() / REREAD_AFTER))

    def _read_workflow(self, workflow: str, version: str, when: int) -> tuple[Policies, Veil, str | None] | None:
        with self.database.autocommit() as connection:
            info = workflow_version(connection, workflow, version)
        if info is None:
            return None
        policies = load_policies(info.name, info.plan, info.policies)
        return policies, self.veil.also(_names(info.input_schema)), info.description

    def end_work(self) -> None:
        """End open streams, and leave bulk actions to the next process."""
        if "hub" in vars(self):
            self.hub.end_streams()
        self.bulks.close()

    def close(self) -> None:
        self.bulks.close()
        if "hub" in vars(self):
            self.hub.close()
        self.database.dispose()


def _names(schema: Any) -> Iterable[str]:
    return secret_names(schema) if schema else ()
