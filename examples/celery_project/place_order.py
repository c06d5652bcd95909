"""A producer: needs neither the Celery app nor the workflows."""

import sys

from rival_client import Rival

with Rival() as rival:
    order = int(sys.argv[1])
    rival.run("place-order", {"order": order, "address": f"customer-{order}@example.com"}, run_id=f"order-{order}")
    print(rival.wait(f"order-{order}", timeout=60).unwrap())
