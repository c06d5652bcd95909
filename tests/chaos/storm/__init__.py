"""`make chaos`: a mixed load on a real fleet while servers and workers are killed, frozen, locked, filled and cut off.

`load` and `cases` say what runs and how it must end, `faults` what breaks it, `ledger` what really ran, and `verdict`
whether anything was lost, stuck or wrong. `python -m tests.chaos.storm --help` starts it.
"""
