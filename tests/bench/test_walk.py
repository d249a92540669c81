"""The count of modules and encodings on the way of a run."""

from bench.runs.walk import walks


def test_walk_covers_all_processes() -> None:
    """A trigger is followed through worker, scheduler and root, an exit through root and scheduler."""
    by_way = {way: {walked.process: walked for walked in each} for way, each in walks(rounds=1, quiet_s=0.5).items()}
    trigger, exit_ = by_way["trigger"], by_way["exit"]
    assert "api.resources.runs.trigger" in trigger["worker"].modules
    assert "supervisor.root.spawn.start_queue" in trigger["root"].modules
    for way in (trigger, exit_):
        assert "supervisor.scheduler.runs.run_engine" in way["scheduler"].modules
        assert any("supervisor.ipc.messages encode" in place for place in way["root"].encodings)
        assert way["scheduler"].transactions >= 1
    assert exit_["worker"].modules == []
