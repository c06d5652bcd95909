"""The systems Rival is compared with, each in its own virtual environment; nothing here imports Rival."""
