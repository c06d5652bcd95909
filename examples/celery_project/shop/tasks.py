"""An old task: it runs as it always did, on the same worker as the workflows."""

import os
from pathlib import Path

from shop.celery import app


@app.task
def send_newsletter(address: str) -> None:
    with Path(os.environ["SHOP_OUTBOX"]).open("a") as outbox:
        outbox.write(f"newsletter to {address}\n")
