"""The messages between the scheduler and its exporters."""

from supervisor.ipc.export_job import ExportStatus


def test_status_between_releases() -> None:
    """A status omits fields with their default, and fields of a later release are ignored."""
    status = ExportStatus(delivered=3)
    assert status.to_dict() == {"delivered": 3}
    assert ExportStatus.from_dict({"delivered": 3, "of_a_later_release": 1}) == status
