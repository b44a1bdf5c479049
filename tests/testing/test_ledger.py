from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kizuna.testing.ledger import Ledger

WRITER = """
import sys
from pathlib import Path
from kizuna.testing.ledger import Ledger
Ledger(Path(sys.argv[1])).write("ended", how="well")
"""


def test_what_any_process_writes_is_read_with_its_facts(ledger: Ledger) -> None:
    assert ledger.read("began") == []
    ledger.write("began", task="a")
    ledger.write("began", task="b")
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(ledger.path)])
    assert child.wait(60) == 0

    assert [(line["task"], line["pid"]) for line in ledger.read("began")] == [("a", os.getpid()), ("b", os.getpid())]
    assert [line["task"] for line in ledger.read("began", task="b")] == ["b"]
    assert [(line["how"], line["pid"]) for line in ledger.read("ended")] == [("well", child.pid)]
    assert ledger.mentions(child.pid)
    assert not ledger.mentions(0)


def test_who_reads_it_first_finds_all_that_was_written_before(ledger: Ledger) -> None:
    for number in range(3):
        ledger.write("counted", number=number)
        assert len(ledger.read("counted")) == number + 1

    assert [line["number"] for line in Ledger(ledger.path).read("counted")] == [0, 1, 2]


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with ledger.path.open("a") as file:
        file.write('{"event": "one", "pid": 1}\n{"event": "two", ')
        file.flush()
        assert (ledger.read("one"), ledger.read("two")) == ([{"event": "one", "pid": 1}], [])
        file.write('"pid": 2}\n')
    assert ledger.read("two") == [{"event": "two", "pid": 2}]
