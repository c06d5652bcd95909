"""`python -m rival_workers.cli` is `rival`."""

from rival_workers.cli.entry import main

main()
