"""What waits packed is unpacked together, and nobody's rows suffer from another's. It does not commit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.telemetry import logs_request
from tidelake.errors import InvalidInputError
from tidelake.runtime.compiling import HAS_COMPILER
from tidelake.server.call import Load, Packed
from tidelake.server.staging import JOINED_BYTES, _Ticket, unpacked
from tidelake.server.wire import otlp, otlp_plain
from tidelake.write.together import Offer

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="bodies wait packed for compiled loops only")

NOW_NS = 1_767_225_600_000_000_000


def ticket(body: bytes, count: int, size: int | None = None) -> Any:
    nothing: Any = None
    packed = Packed(body, otlp.decode_logs, otlp.logs_together, NOW_NS)
    return _Ticket(Load("default.otel_logs", packed, count), None, size or len(body), (), nothing, 0.0)


def rows(offer: Any) -> Any:
    assert isinstance(offer, Offer)
    return offer.rows.to_pylist()  # type: ignore[union-attr]


def test_each_request_has_its_own_rows_when_many_are_unpacked_together() -> None:
    requests = [logs_request(10 + seed, seed) for seed in range(5)]
    group = [ticket(each.SerializeToString(), 10 + seed) for seed, each in enumerate(requests)]
    alone = [otlp.decode_logs(each.SerializeToString(), NOW_NS)[0].to_pylist() for each in requests]
    assert [rows(offer) for offer in unpacked(group)] == alone


def test_what_is_larger_than_one_call_takes_is_unpacked_by_several() -> None:
    body = logs_request(10, 1).SerializeToString()
    group = [ticket(body, 10, JOINED_BYTES // 2 + 1) for _ in range(4)]
    assert [len(rows(offer)) for offer in unpacked(group)] == [10, 10, 10, 10]


def test_a_broken_request_among_good_ones_fails_alone() -> None:
    good = logs_request(10, 1).SerializeToString()
    broken = b"\x0a\x06\x12\x04\x12\x02\x32\x7f"  # a record whose attribute is longer than it is
    found = unpacked([ticket(good, 10), ticket(broken, 1), ticket(good, 10)])
    assert [len(rows(found[0])), len(rows(found[2]))] == [10, 10]
    assert isinstance(found[1], InvalidInputError)
    assert found[1].kind == "bad_protobuf"


def test_a_request_that_the_loops_leave_alone_does_not_slow_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    good, odd = logs_request(200, 1), logs_request(200, 2)
    odd.resource_logs[0].scope_logs[0].log_records[0].attributes.add(key="k").value.string_value = "x"
    marked = odd.SerializeToString().replace(b"\x01k\x12\x03\x0a\x01x", b"\x01k\x12\x03\x0a\x01\xff")  # no UTF-8
    plainly: list[int] = []

    def plain(body: bytes, received_ns: int) -> otlp.Decoded:
        plainly.append(len(body))
        return otlp_plain.decode_logs(body, received_ns)

    monkeypatch.setattr(otlp, "_WAYS", otlp._WAYS | {"logs": (otlp._logs, plain)})
    otlp.warm()
    body = good.SerializeToString()
    found = unpacked([ticket(body, 200), ticket(marked, 200), ticket(body, 200)])
    assert [len(rows(found[0])), len(rows(found[2]))] == [200, 200]
    assert plainly == [len(marked)]
