"""Show that a process is known to be gone only if it is."""

from __future__ import annotations

import os
import subprocess
import sys

from tidelake.runtime.processes import is_gone, process_name

NAME = "from tidelake.runtime.processes import process_name; print(process_name(), flush=True)"


def test_a_process_is_gone_once_it_has_ended_and_not_before() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", f"{NAME}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    assert not is_gone(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name)  # though its parent has not looked yet
    child.communicate()
    assert is_gone(name)


def test_another_process_of_the_same_id_does_not_count() -> None:
    host, pid, place, start = process_name().split(":")
    assert not is_gone(process_name())
    assert is_gone(f"{host}:{pid}:{place}:{int(start) - 1}")


def test_what_cannot_be_known_is_not_gone() -> None:
    host, pid, place, start = process_name().split(":")
    unknown = [
        f"{host}:{pid}",  # as older programs name themselves
        f"elsewhere:999999:{place}:{start}",
        f"{host}:999999:00000000:{start}",  # another boot or container of the same host name
        f"spark {host}:999999",
        f"{host}:0:{place}:{start}",
        f"{host}:-1:{place}:{start}",
        f"{host}:x:{place}:{start}",
        f"{host}:{10**30}:{place}:{start}",
        "",
        ":::",
    ]
    assert [name for name in unknown if is_gone(name)] == []


def test_a_forked_child_has_a_name_of_its_own() -> None:
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(writing, process_name().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    name = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert name.split(":")[1] == str(pid)
    assert is_gone(name)
