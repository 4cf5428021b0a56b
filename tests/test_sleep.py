"""The comm thread's sleeps, and what must not change for them."""

from __future__ import annotations

import os
import sys
import threading
import time

import pytest

from mgwfbp.comm.sleep import SLICE_NS, scheduling, sharpen_sleeps, sleep_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux schedules so")


def in_a_thread(policy, nice):
    """(policy, nice value, slice) of a thread that had these, after it asked for sharp sleeps."""
    found = []

    def body():
        number = threading.get_native_id()
        os.sched_setscheduler(number, policy, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, number, nice)
        before = scheduling()
        sharpen_sleeps()
        after = scheduling()
        took_slice = after is not None and (after[5] == SLICE_NS or after[5] == before[5] == 0)
        found.append((os.sched_getscheduler(number), os.getpriority(os.PRIO_PROCESS, number), took_slice))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("policy", [os.SCHED_OTHER, os.SCHED_BATCH])
@pytest.mark.parametrize("nice", [0, 7])
def test_policy_and_nice_value_stay_what_the_job_was_given(policy, nice):
    if scheduling() is None:
        pytest.skip("no sched_getattr here")
    assert in_a_thread(policy, nice) == (policy, nice, True)


def test_an_idle_thread_stays_as_it_is():
    assert in_a_thread(os.SCHED_IDLE, 0)[:2] == (os.SCHED_IDLE, 0)


def test_a_deadline_is_met():
    deadline = time.perf_counter_ns() + 2_000_000
    sleep_until(deadline)
    assert 0 <= time.perf_counter_ns() - deadline < 50_000_000
