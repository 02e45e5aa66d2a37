"""Choose which process of a test run takes which tests.

A file's tests stay in one process, and all tests that need Spark in one, so that a run has one session. A process that
dies fails the test it was in; the others of its files are run by whoever is left, and the run ends.

It does not start processes, nor restart them: xdist does.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

SPARK_TESTS = "TIDELAKE_SPARK_TESTS"  # names the file in which the processes of a run say which tests need Spark


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types
    """Keep a file's tests in one process, and all tests that need Spark in one."""

    @cached_property
    def _spark_tests(self) -> frozenset[str]:  # asked for when every process has collected
        return frozenset(Path(os.environ[SPARK_TESTS]).read_text().splitlines())

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid in self._spark_tests else nodeid.partition("::")[0]

    def remove_node(self, node: Any) -> str | None:
        """Put the tests that a process left back, without those that ran and the one that it died in; return that one.

        xdist's own also puts files back of which every test ran: a process that is given one has nothing to report, is
        given nothing more, and the run never ends.
        """
        workload: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        waiting = [(tests, nodeid) for tests in workload.values() for nodeid, ran in tests.items() if not ran]
        if not waiting:
            return None
        tests, died_in = waiting[0]
        tests[died_in] = True  # or it would take the next process with it
        self.workqueue.update({scope: tests for scope, tests in workload.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_in
