"""The batches of the state: chains count each version once, and merging keeps them short."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.control.spark.reports.batches import FAN, Batch, is_chain, merged_level, to_merge

FIRST = Batch(since=-1, version=4, level=0, lineage="l", table_id="t", commit="c")


def follow(last: Batch, versions: int) -> Batch:
    """The batch that the next run adds."""
    return msgspec.structs.replace(last, since=last.version, version=last.version + versions, level=0)


@given(st.lists(st.integers(1, 5), max_size=600))
def test_merging_keeps_a_chain_short_and_each_version_counted_once(runs: list[int]) -> None:
    """After n runs at most FAN - 1 batches of each level remain, and each was rewritten once per level."""
    chain, rewritten = [FIRST], 0
    for versions in runs:
        chain.append(follow(chain[-1], versions))
        if newest := to_merge(chain):
            rewritten += sum(FAN**batch.level for batch in newest)
            merged = msgspec.structs.replace(newest[-1], since=newest[0].since, level=merged_level(newest))
            chain[-len(newest) :] = [merged]
        assert is_chain(chain)

    levels = 1 + math.ceil(math.log(len(runs) + 1, FAN))
    assert len(chain) <= (FAN - 1) * levels
    assert rewritten <= levels * FAN * (len(runs) + 1)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_a_batch_that_is_missing_or_counted_twice_is_noticed(runs: list[int], data: st.DataObject) -> None:
    """Then everything is counted again, instead of a wrong sum."""
    chain = [FIRST]
    for versions in runs:
        chain.append(follow(chain[-1], versions))
    at = data.draw(st.integers(0, len(chain) - 1))

    assert is_chain(chain)
    assert not is_chain(sorted([*chain, chain[at]]))
    assert at == len(chain) - 1 or not is_chain(chain[:at] + chain[at + 1 :])
    other = msgspec.structs.replace(chain[at], lineage="another count")
    assert not is_chain([*chain[:at], other, *chain[at + 1 :]])
