"""Connections of clients are counted as the system lists them."""

from __future__ import annotations

from pathlib import Path

from tests.soak.watches import connections_to

_TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:C001 0100007F:3A98 01 00000000:00000000
   1: 0100007F:C002 0100007F:3A9A 01 00000000:00000000
   2: 0100007F:C003 0100007F:3A98 06 00000000:00000000
   3: 0100007F:3A98 0100007F:C001 01 00000000:00000000
   4: 0100007F:C004 0100007F:3A9B 01 00000000:00000000
"""


def test_only_established_connections_to_the_ports_count(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    table.write_text(_TABLE)

    assert connections_to(range(15_000, 15_003), table) == 2
