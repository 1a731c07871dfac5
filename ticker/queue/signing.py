"""Signs jobs, to prove that a ticker pushed this job with this id to this queue, and that it has not changed since.

A signature is HMAC-SHA256, cut to 128 bits. It has its own field in RQ's hash, so that every RQ tool can still read the
job. It covers the id, the queue, the timeout and the call in RQ's `data`. The call is unpacked first, because RQ packs
it again when it saves a job. So a signature does not fit another job, queue or payload.

A signature has no timestamp. If an old job is pushed again, the start statement decides whether it runs.
"""

import hashlib
import hmac
from collections.abc import Sequence

FIELD = "signature"
BYTES = 16
_PURPOSE = b"rq-ticker job 1"


def sign(key: str, job_id: str, queue: str, timeout: int, call: bytes) -> bytes:
    return _code(key, [job_id.encode(), queue.encode(), b"%d" % timeout, call])


def fits(keys: Sequence[str], signature: bytes, job_id: bytes, queue: bytes, timeout: bytes, call: bytes) -> bool:
    """Returns whether one of the keys made this signature over the call, and over the fields as Redis has them."""
    parts = [job_id, queue, timeout, call]
    return any(hmac.compare_digest(_code(key, parts), signature) for key in keys)


def _code(key: str, parts: Sequence[bytes]) -> bytes:
    """Returns the authentication code of the parts. Each part follows its length, so that two lists never give the same
    text.
    """
    text = b"".join(len(part).to_bytes(8) + part for part in (_PURPOSE, *parts))
    return hmac.digest(key.encode("utf-8", "surrogateescape"), text, hashlib.sha256)[:BYTES]
