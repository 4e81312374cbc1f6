"""A failing stream is rejected at once, and tried by one request at a time."""

from __future__ import annotations

from services.producer.core.circuit_breaker import CircuitBreaker


def test_an_open_circuit_rejects_for_a_pause_and_then_admits_one_trial() -> None:
    """No other request waits for the trial's outcome, and other streams are unaffected."""
    breaker = CircuitBreaker(first_pause_s=1, trial_s=10)

    breaker.record_failure(3, "no leader", 100.0)
    open_ = [breaker.rejection(3, at) for at in (100.0, 100.9, 101.0)]
    breaker.record_attempt(3, 101.0)
    half_open = [breaker.rejection(3, at) for at in (101.0, 110.9)]

    assert open_ == ["no leader", "no leader", ""]
    assert half_open == ["no leader", "no leader"]
    assert breaker.rejection(4, 100.0) == ""
    assert [breaker.is_closed(stream) for stream in (3, 4)] == [False, True]
    assert breaker.remarks() == ["stream 3: no leader"]


def test_asking_does_not_start_a_trial() -> None:
    """A request that is rejected because of another stream sends nothing, so it must not block the next."""
    breaker = CircuitBreaker(first_pause_s=1, trial_s=10)
    breaker.record_failure(3, "no leader", 100.0)

    assert [breaker.rejection(3, 101.0) for _ in range(3)] == ["", "", ""]


def test_a_trial_without_a_result_is_followed_by_another() -> None:
    """The request on trial may hang, or be lost with all others while Kafka is silent."""
    breaker = CircuitBreaker(first_pause_s=1, trial_s=10)
    breaker.record_failure(3, "no leader", 100.0)
    breaker.record_attempt(3, 101.0)

    assert breaker.rejection(3, 110.9) == "no leader"
    assert breaker.rejection(3, 111.0) == ""


def test_each_failed_trial_doubles_the_pause_up_to_a_bound_and_a_success_resets_it() -> None:
    """A stream that never recovers costs the others next to nothing; one that recovers is used at once."""
    breaker, pauses = CircuitBreaker(trial_s=10), list[int]()

    for _ in range(8):
        breaker.record_failure(3, "no leader", 0.0)
        pauses.append(next(at for at in range(100) if not breaker.rejection(3, at)))
        breaker.record_attempt(3, 0.0)
    breaker.record_success(3)
    breaker.record_success(3)  # of a second batch
    after_success = breaker.rejection(3, 0.0), breaker.is_any_open
    breaker.record_failure(3, "no leader", 0.0)
    breaker.record_failure(3, "no leader", 0.0)  # of an earlier batch, not of a trial

    assert pauses == [1, 2, 4, 8, 10, 10, 10, 10]
    assert after_success == ("", False)
    assert breaker.rejection(3, 0.9) == "no leader"
    assert breaker.rejection(3, 1.0) == ""
