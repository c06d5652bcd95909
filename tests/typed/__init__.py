"""Programs for type checkers, see tests/unit/test_typing.py."""
