"""The Celery app that the shop has had for years. The last three lines are new."""

import os
from pathlib import Path

from celery import Celery

app = Celery("shop", broker=os.environ["CELERY_BROKER_URL"], include=["shop.tasks"])
app.conf.update(
    task_default_queue=os.environ.get("SHOP_QUEUE", "celery"),
    task_acks_late=True,
    task_time_limit=300,
    worker_prefetch_multiplier=1,
)

from rival_workers import install  # noqa: E402

install(app, workflows=Path(__file__).parents[1] / "workflows")
