"""The errors of a lab.

RivalError (rival_client)
└── LabError             the lab is used in a way that cannot work; the message says what to do instead
    └── NeverEnds        a run does not end in this lab
"""

from __future__ import annotations

from rival_client.errors import RivalError


class LabError(RivalError):
    """The lab cannot do that."""


class NeverEnds(LabError):
    """The run waits for something that will not happen in this lab."""
