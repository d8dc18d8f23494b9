"""A pytest plugin for the conformance cases of the sandbox on the `landlock` backend: `pytest -p landlock_cases`.

The cases describe a full sandbox. On this backend a policy is enforced, or refused with the reason; and what a reported
gap leaves open stays open. So a case passes here if it holds, if the server refused its policy, or if it is about a gap
and the server reports that gap. Anything else fails.
"""

import pytest

# Cases about what stays open, and the gap that says so.
GAPS = {
    "test_restricted_read_processes": "outsideNames",
    "test_host_processes_are_invisible": "hostView",
    "test_devices": "hostView",
    "test_metadata_of_a_writable_root_is_protected": "protectedMetadata",
    "test_missing_metadata_cannot_be_created": "protectedMetadata",
    "test_a_git_pointer_file_protects_its_target": "protectedMetadata",
    "test_symlinked_metadata_fails_closed": "protectedMetadata",
    "test_protection_survives_a_neighbour_ending": "protectedMetadata",
    "test_protection_of_a_neighbour_with_another_tmpdir": "protectedMetadata",
}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when != "call" or not report.failed:
        return
    if "sandboxUnavailable" in report.longreprtext:
        accept(report, "refused")
    elif reported(item, GAPS.get(item.originalname)):
        accept(report, f"reported: {GAPS[item.originalname]}")


def accept(report, why):
    report.outcome = "skipped"
    report.wasxfail = why


def reported(item, gap):
    """Whether the server of this case has reported the gap in the answer to a start."""
    return gap is not None and any(gap in gaps for gaps in STARTED.get(item.nodeid, ()))


STARTED = {}


@pytest.fixture(autouse=True)
def _started(request, monkeypatch):
    """Remembers the gaps that the answers to the starts of a case reported."""
    import rpc

    seen = STARTED.setdefault(request.node.nodeid, [])
    call = rpc.Rpc.call

    async def remembering(self, method, params, *args, **kwargs):
        response = await call(self, method, params, *args, **kwargs)
        if method == "process/start" and "result" in response:
            seen.append(response["result"].get("sandboxGaps") or [])
        return response

    monkeypatch.setattr(rpc.Rpc, "call", remembering)
