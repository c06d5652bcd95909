"""Rival, DBOS and Celery chains measured side by side; `python -m benchmarks` runs it all."""
