"""What a lab refuses.

RivalError (rival_client)
└── LabError             a lab is used in a way that cannot work; the message says how it can
    └── NeverEnds        a run that is to be brought to its end has none
"""

from __future__ import annotations

from rival_client.errors import RivalError


class LabError(RivalError):
    """The lab cannot do that."""


class NeverEnds(LabError):
    """The run waits for something that will not happen in this lab."""
