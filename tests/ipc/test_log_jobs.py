"""The messages between the scheduler and its exporters."""

from supervisor.ipc.helper_messages import from_fields
from supervisor.ipc.log_jobs import ExportStatus
from supervisor.ipc.messages import without_defaults


def test_status_between_releases() -> None:
    """A status omits fields with their default, and fields of a later release are ignored."""
    status = ExportStatus(delivered=3)
    assert without_defaults(status) == {"delivered": 3}
    assert from_fields(ExportStatus, {"delivered": 3, "of_a_later_release": 1}) == status
