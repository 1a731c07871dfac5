"""Signatures of jobs: that a ticker pushed this job, under this id, to this queue, and that nobody changed it since.

A signature is HMAC-SHA256, cut to 128 bits: in a field of its own of RQ's hash, so that a job stays what every RQ tool
reads. It covers the id, the queue, the time-out and the call in RQ's `data`, unpacked, as RQ packs it
anew when it saves a job; a signature that is moved to another job,
queue or payload does not fit. It says nothing about when: an old job that is pushed again is the start statement's matter.
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
    """Whether one of the keys made this signature, over the fields as Redis holds them, and the call."""
    parts = [job_id, queue, timeout, call]
    return any(hmac.compare_digest(_code(key, parts), signature) for key in keys)


def _code(key: str, parts: Sequence[bytes]) -> bytes:
    """Each part behind its length, so that no two lists of parts are the same text."""
    text = b"".join(len(part).to_bytes(8) + part for part in (_PURPOSE, *parts))
    return hmac.digest(key.encode("utf-8", "surrogateescape"), text, hashlib.sha256)[:BYTES]
