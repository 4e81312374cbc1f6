"""What the state counts of sessions, and how its rows add up.

The state has one wide table. Its rows belong to parts: `quarters` (sums and sketches for each quarter of an
hour), `visits` (of each key in it), `keys` (a key's first quarter of all) and, for each JSON path with its
rules, `steps` (from an item to the next one in the same session; the last item's `next` is null). All of them
add up: rows of several batches with the same names are summed, or merged, and nothing is lost. For ranges,
`visits` and `steps` also have parts in which `start` is the beginning of a block of days.
"""

from __future__ import annotations

import hashlib
import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, StringType, StructField, StructType

from services.control.spark.reports.plan import BLOCK_MS, QUARTER_MS, ItemRules

K = 300
"""Size of the KLL sketches of durations and lengths."""
RANK_ERROR = round(2.296 / K**0.9723, 4)
"""How far from the asked rank a percentile may lie (in 99 of 100 sketches), as a share of the sessions: the
formula of Apache DataSketches (`KllHelper.getNormalizedRankError`)."""
REASONS = ("end", "gap", "limit")
NAMES = {
    "quarters": ("start",),
    "visits": ("start", "key"),
    "keys": ("key",),
    "steps": ("path", "rules", "start", "item", "next"),
}
"""The columns that name a row, by kind of part."""
SUMS = {
    "quarters": (
        *("sessions", "fragments", "bytes", "duration_ms", "bounces"),
        *(f"ended_{reason}" for reason in REASONS),
    ),
    "visits": ("sessions", "fragments", "bytes"),
    "keys": (),
    "steps": ("sessions", "fragments", "entries"),
}
SKETCHES = ("duration_sketch", "length_sketch")
COLUMNS = {
    "start": "TIMESTAMP",
    "key": "STRING",
    **dict.fromkeys(("path", "rules", "item", "next"), "STRING"),
    **dict.fromkeys((*SUMS["quarters"], "entries"), "BIGINT"),
    **dict.fromkeys(SKETCHES, "BINARY"),
}
"""Of a row of any part, with their types; those that a part does not have are null."""
ITEMS = 2
"""Raise it when a path finds other items than before, so that they are counted anew."""
LIMITS = dict.fromkeys(("maxNumLen", "maxStringLen", "maxNestingDepth"), str(2**31 - 1))
"""Of Spark's parser, which by default finds nothing in a fragment that has a number of 1,001 digits."""
_INFINITE = ('"Infinity"', '"-Infinity"')
"""What Spark makes of a number like 1e400; without the quotes it would be a text."""
_STEP = re.compile(r"\.(?P<name>[\w-]+)|\['(?P<quoted>[^']+)'\]|\[(?P<index>[0-9]+)\]")
READ = ("key", "reason", "first_time", "last_time", "fragments", "bytes", "data")
"""The columns of `sessions` that are counted."""


def steps_part(path: str, rules: ItemRules) -> str:
    """The name of the part that counts the items of a path; other rules make another part."""
    return "steps-" + hashlib.blake2b(f"{path}\n{rules.text}\n{ITEMS}".encode(), digest_size=6).hexdigest()


def kind_of(part: str) -> str:
    """`quarters`, `visits`, `keys` or `steps`."""
    return re.split("[-.]", part)[0]


def blocks_part(part: str) -> str:
    """The name of the part that sums another one's quarters of an hour to blocks."""
    return f"{part}.blocks"


def has_blocks(part: str) -> bool:
    """Whether blocks are kept of it: the same keys and steps come again in other quarters."""
    return kind_of(part) in ("visits", "steps") and not part.endswith(".blocks")


def count(sessions: DataFrame, part: str, path: str, rules: ItemRules) -> DataFrame:
    """The rows of a part for these sessions (columns READ). `path` and `rules` matter to `steps` alone."""
    quarter = f.timestamp_millis(f.col("first_time") - f.pmod("first_time", f.lit(QUARTER_MS)))
    timed = sessions.withColumn("start", quarter)
    if part == "quarters":
        return _quarters(timed)
    if part == "keys":
        return add_up(timed.select("key", "start"), part)
    if part == "visits":
        return add_up(
            timed.select("key", "start", f.lit(1).cast("bigint").alias("sessions"), "fragments", "bytes"),
            part,
        )
    return add_up(_steps(timed, path, rules), part)


def add_up(rows: DataFrame, part: str) -> DataFrame:
    """The rows with the same names as one."""
    kind = kind_of(part)
    sums = [f.sum(name).alias(name) for name in SUMS[kind]]
    if kind == "quarters":
        sums += [f.kll_merge_agg_bigint(name, K).alias(name) for name in SKETCHES]
    if kind == "keys":
        sums.append(f.min("start").alias("start"))
    return rows.groupBy(*NAMES[kind]).agg(*sums)


def to_blocks(rows: DataFrame, part: str) -> DataFrame:
    """The rows of a part, summed per block."""
    start_ms = f.unix_millis("start")
    start = f.timestamp_millis(start_ms - f.pmod(start_ms, f.lit(BLOCK_MS)))
    return add_up(rows.withColumn("start", start), part)


def _quarters(timed: DataFrame) -> DataFrame:
    duration_ms = f.col("last_time") - f.col("first_time")
    return timed.groupBy("start").agg(
        f.count("*").alias("sessions"),
        f.sum("fragments").alias("fragments"),
        f.sum("bytes").alias("bytes"),
        f.sum(duration_ms).alias("duration_ms"),
        f.count_if(f.col("fragments") == 1).alias("bounces"),
        *(f.count_if(f.col("reason") == reason).alias(f"ended_{reason}") for reason in REASONS),
        f.kll_sketch_agg_bigint(duration_ms, K).alias("duration_sketch"),
        f.kll_sketch_agg_bigint("fragments", K).alias("length_sketch"),
    )


def _steps(timed: DataFrame, path: str, rules: ItemRules) -> DataFrame:
    """One row for each item of a session, and one for each of its distinct items, which counts the session.

    The array of items lives within a session's row and is not copied to others.
    """
    found = items_of(f.col("data"), path, rules)
    of_session = timed.select("start", f.filter(found, lambda item: item.isNotNull()).alias("items"))
    step = "named_struct('item', item, 'next', get(items, at + 1), 'sessions', 0L, 'fragments', 1L, "
    step += "'entries', if(at = 0, 1L, 0L))"
    once = "named_struct('item', item, 'next', get(items, size(items)), 'sessions', 1L, 'fragments', 0L, "
    once += "'entries', 0L)"
    rows = of_session.selectExpr(
        "start",
        f"inline(concat(transform(items, (item, at) -> {step}), "
        f"transform(array_distinct(items), item -> {once})))",
    )
    return rows.select(f.lit(path).alias("path"), f.lit(rules.text).alias("rules"), "*")


def items_of(data: Column, path: str, rules: ItemRules) -> Column:
    """What a JSON path finds in each fragment, as text, after the rules; null where it finds nothing.

    Of a name that an object has twice, the last one counts: `get_json_object` would find the first.
    """
    steps = [step["name"] or step["quoted"] or int(step["index"]) for step in _STEP.finditer(path)]
    if isinstance(steps[0], int):
        return f.transform(data, lambda _: f.lit(None).cast("string"))  # a fragment is an object
    # Spark reads numbers as doubles: what no double can hold is taken from the text. Anchored, because a
    # search that begins anew at each character is quadratic
    pattern = rf'(?s)^.*"{re.escape(str(steps[-1]))}"\s*:\s*(-?[0-9][0-9.eE+-]*)'

    def found(fragment: Column) -> Column:
        item = fragment
        names: list[str] = []
        for step in [*steps, None]:
            if isinstance(step, str):
                names.append(step)
            elif names or step is not None:
                # an element of a list is read as a text first, because others may be of another kind
                kind: DataType = StringType() if step is None else ArrayType(StringType())
                for name in reversed(names):
                    kind = StructType([StructField(name, kind)])
                item = f.from_json(item, kind, LIMITS)
                for name in names:
                    item = item.getField(name)
                item, names = item if step is None else f.get(item, f.lit(step)), []
        return item

    def exact(item: Column, fragment: Column) -> Column:
        number = f.regexp_extract(fragment, pattern, 1)
        return rewritten(f.when(item.isin(*_INFINITE) & (number != ""), number).otherwise(item), rules)

    # in two passes, because Spark evaluates an expression in a lambda as often as it is used
    return f.zip_with(f.transform(data, found), data, exact)


def rewritten(item: Column, rules: ItemRules) -> Column:
    """The item after the rules."""
    if rules.cut_query:
        item = f.substring_index(f.substring_index(item, "?", 1), "#", 1)
    for pattern, replacement in rules.pairs:
        item = f.regexp_replace(item, pattern, replacement)
    return item
