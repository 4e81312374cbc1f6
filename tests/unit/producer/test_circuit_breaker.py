"""Streams in trouble are refused at once, and tried by one request at a time."""

from __future__ import annotations

from services.producer.core.circuit_breaker import CircuitBreaker


def test_a_stream_that_failed_is_refused_for_a_while_and_then_tried_by_one() -> None:
    """Nobody else waits for the outcome of the trial, and other streams are not concerned."""
    ailing = CircuitBreaker(first_s=1, try_s=10)

    ailing.fail(3, "no leader", 100.0)
    before = [ailing.refusal(3, at) for at in (100.0, 100.9, 101.0)]
    ailing.sent(3, 101.0)
    meanwhile = [ailing.refusal(3, at) for at in (101.0, 110.9)]

    assert before == ["no leader", "no leader", ""]
    assert meanwhile == ["no leader", "no leader"]
    assert ailing.refusal(4, 100.0) == ""
    assert ailing.told() == ["stream 3: no leader"]


def test_to_ask_is_no_trial() -> None:
    """A request that is refused for another stream's sake sends nothing, so it must not hold up the next."""
    ailing = CircuitBreaker(first_s=1)
    ailing.fail(3, "no leader", 100.0)

    assert [ailing.refusal(3, 101.0) for _ in range(3)] == ["", "", ""]


def test_a_trial_that_nobody_hears_of_again_is_followed_by_another() -> None:
    """The request that tried may hang, or be lost with the client."""
    ailing = CircuitBreaker(first_s=1, try_s=10)
    ailing.fail(3, "no leader", 100.0)
    ailing.sent(3, 101.0)
    hung = ailing.refusal(3, 111.0)
    ailing.sent(3, 111.0)

    ailing.forget_trials(112.0)

    assert hung == ""
    assert ailing.refusal(3, 112.0) == ""


def test_pauses_double_with_each_trial_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    """A stream that is gone for good costs the others next to nothing; one that is well again, nothing."""
    pauses: dict[bool, list[int]] = {False: [], True: []}

    for is_costly, found in pauses.items():
        ailing = CircuitBreaker(first_s=1, most_s=5, costly_s=7)
        for _ in range(5):
            ailing.fail(3, "no leader", 0.0, is_costly=is_costly)
            found.append(next(at for at in range(100) if not ailing.refusal(3, at)))
            ailing.sent(3, 0.0)
    ailing.heal(3)
    healed = ailing.refusal(3, 0.0), bool(ailing)
    ailing.fail(3, "no leader", 0.0)
    ailing.fail(3, "no leader", 0.0)  # of a batch behind it, not of a trial

    assert pauses == {False: [1, 2, 4, 5, 5], True: [1, 2, 4, 7, 7]}
    assert healed == ("", False)
    assert ailing.refusal(3, 0.9) == "no leader"
    assert ailing.refusal(3, 1.0) == ""
