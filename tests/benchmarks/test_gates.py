"""The gates let a good run through and stop a bad one."""

import math

import pytest

from tests.benchmarks.gates import MOST_NOISE, Gate, Report, aa_noise, paired_ratio, percentile, scaled_count


def test_a_limit_reached_is_kept_and_passed_is_not() -> None:
    assert Gate("start", 1.30, 1.3).verdict == "ok"
    assert Gate("start", 1.31, 1.3).verdict == "too much"


def test_noise_of_the_run_against_itself_is_forgiven_and_no_more() -> None:
    assert Gate("start", 1.36, 1.3, noise=0.05).verdict == "ok"
    assert Gate("start", 1.37, 1.3, noise=0.05).verdict == "too much"


def test_a_machine_that_is_too_noisy_decides_nothing_but_fails() -> None:
    gate = Gate("start", 1.4, 1.3, noise=MOST_NOISE + 0.01)
    assert gate.verdict == "too noisy"
    assert not Report("start", [gate]).passed


def test_a_good_figure_is_good_however_noisy() -> None:
    assert Gate("start", 1.1, 1.3, noise=0.9).verdict == "ok"


def test_nothing_measured_is_a_failure() -> None:
    assert not Report("start").passed
    assert Gate("start", math.nan, 1.3).verdict == "too much"


def test_one_bad_gate_fails_the_report_and_is_seen() -> None:
    report = Report("idle", [Gate("host", 3, 6, unit="switches"), Gate("renderer", 61, 6, unit="switches")])
    assert not report.passed
    assert "FAILED" in report.text()
    assert "too much   renderer: 61 switches (limit 6)" in report.text()


def test_a_slow_machine_slows_both_sides_of_a_pair() -> None:
    base = [1.0, 2.0, 1.1, 5.0, 1.0]
    assert paired_ratio([value * 1.25 for value in base], base) == pytest.approx(1.25)
    assert aa_noise(base, base) == 0.0
    assert aa_noise([1.0, 1.0], [1.1, 1.1]) == pytest.approx(aa_noise([1.1, 1.1], [1.0, 1.0]))


def test_a_planted_slowdown_passes_no_noise_that_is_allowed() -> None:
    base = [0.30, 0.31, 0.29]
    slow = [value * 1.15 + 0.4 for value in base]
    assert Gate("start", paired_ratio(slow, base), 1.3, noise=MOST_NOISE).verdict == "too much"


def test_a_planted_timer_passes_no_count() -> None:
    for seconds in (10.0, 60.0):
        assert Gate("host", seconds, scaled_count(6, seconds), unit="switches").verdict == "too much"


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.95) == 95
    assert percentile(values, 0.5) == 50
    assert percentile([7.0], 0.95) == 7.0
    assert math.isnan(percentile([], 0.95))


def test_unequal_series_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        paired_ratio([1.0], [1.0, 2.0])
