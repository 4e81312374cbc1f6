"""Streams in trouble are refused at once, and tried by one request at a time."""

from __future__ import annotations

from services.producer.core.ailing import AilingStreams


def test_a_stream_that_failed_is_refused_for_a_while_and_then_tried_by_one() -> None:
    """Nobody else waits for the outcome of the trial, and other streams are not concerned."""
    ailing = AilingStreams(first_s=1, try_s=10)

    ailing.fail(3, "no leader", 100.0)

    assert [ailing.refusal(3, at) for at in (100.0, 100.9, 101.0, 101.0, 110.9)] == [
        *("no leader", "no leader", "", "no leader", "no leader")
    ]
    assert ailing.refusal(4, 100.0) == ""
    assert ailing.told() == ["stream 3: no leader"]


def test_a_trial_that_nobody_hears_of_again_is_followed_by_another() -> None:
    """The request that tried may have been lost with the client."""
    ailing = AilingStreams(first_s=1, try_s=10)
    ailing.fail(3, "no leader", 100.0)
    ailing.refusal(3, 101.0)

    assert ailing.refusal(3, 111.0) == ""


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    """A stream that is gone for good costs the others next to nothing; one that is well again, nothing."""
    ailing = AilingStreams(first_s=1, most_s=5)
    pauses = []

    for _ in range(4):
        ailing.fail(3, "no leader", 0.0)
        pauses.append(next(at for at in range(100) if not ailing.refusal(3, at)))
    ailing.heal(3)
    healed = ailing.refusal(3, 0.0), bool(ailing)
    ailing.fail(3, "no leader", 0.0)

    assert pauses == [1, 2, 4, 5]
    assert healed == ("", False)
    assert ailing.refusal(3, 0.9) == "no leader"
    assert ailing.refusal(3, 1.0) == ""
