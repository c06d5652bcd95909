"""The token by which an external system names a step: opaque text that contains run, step and attempt.

It is a name, not a secret: a caller that can use it can use the database anyway. Authenticate callers before you pass a
token on.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass

from rival_client.errors import InvalidArgument, InvalidToken
from rival_client.model.checks import amounts, arguments

_PREFIX = "rvl_"


@dataclass(frozen=True)
class CompletionToken:
    """One attempt of an external step. Any retry, timeout, takeover, cancel or rewind makes it stale."""

    run_id: str
    path: str
    #: The execution token that the attempt has held.
    token: int

    def __str__(self) -> str:
        content = json.dumps([self.run_id, self.path, self.token], ensure_ascii=False, separators=(",", ":")).encode()
        signed = content + zlib.crc32(content).to_bytes(4)
        return _PREFIX + base64.urlsafe_b64encode(signed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: object) -> CompletionToken:
        """InvalidToken if the text is not a whole token: a part of one, another text, a typing error."""
        if isinstance(text, CompletionToken):
            return cls._checked(text.run_id, text.path, text.token)
        if not isinstance(text, str) or not text.startswith(_PREFIX):
            raise InvalidToken
        content = _content(text.removeprefix(_PREFIX))
        try:
            run_id, path, token = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            raise InvalidToken from None
        return cls._checked(run_id, path, token)

    @classmethod
    def _checked(cls, run_id: object, path: object, token: object) -> CompletionToken:
        """Checks the parts of a token. Its checksum is not a signature, so a token can contain anything."""
        try:
            # Less than the largest integer: statements also look for the token after this one.
            number = amounts.whole("token", token, 0, amounts.MAX_INT - 1)
            return cls(arguments.run_id(run_id), arguments.step(path), number)
        except InvalidArgument:
            raise InvalidToken from None


def _content(encoded: str) -> bytes:
    """The checksum finds typing errors: base64 alone accepts most texts."""
    try:
        signed = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken from None
    content, crc = signed[:-4], signed[-4:]
    if len(signed) < 5 or zlib.crc32(content).to_bytes(4) != crc:
        raise InvalidToken
    return content
