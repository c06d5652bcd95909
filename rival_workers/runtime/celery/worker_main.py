"""The entry of one worker process of a fleet: `python -m rival_workers.runtime.celery.worker_main …`."""

from __future__ import annotations

import argparse
import logging
import sys

from rival_client.errors import InvalidSetting, RivalError
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import default_registry
from rival_workers.runtime.celery.worker import Worker
from rival_workers.runtime.logs.process_log import start_logging
from rival_workers.settings import WorkerSettings


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    try:
        settings = WorkerSettings.from_env()
        start_logging(options.loglevel, settings.log_format)
        logging.getLogger("celery").setLevel(max(logging.getLogger().level, logging.WARNING))
        register_paths(settings.workflow_paths)
        worker = Worker(
            settings, default_registry, pool=options.pool, concurrency=options.concurrency, name=options.name,
            reload=options.reload,
        )  # fmt: skip
        worker.run(loglevel=options.loglevel, events=options.events)
    except RivalError as error:
        print(f"rival worker: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidSetting) else 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rival-worker-process")
    parser.add_argument("--pool", default="threads", choices=["threads", "prefork", "solo"])
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--name", default="rival@%h")
    parser.add_argument("--loglevel", default="INFO")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--reload", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
