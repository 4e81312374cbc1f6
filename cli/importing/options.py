"""What an import is asked to do, and what came out of it: the values that `run_import` takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cli.http.receipts import MarkerPosition
from cli.importing.parsing.formats import Format
from cli.importing.parsing.rows import Fields
from cli.importing.reading.clocks import Doubt
from cli.importing.sending.lanes import Post
from cli.importing.tally import Tally
from cli.terminal.exit_codes import ExitCode
from shared.model.names import DEFAULT_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """One import; `name` is part of the fragments' ids, `group` the one to wait for.

    `marker`: close the sessions at the end of the log; `close`: even where others' sessions may still run,
    and the log ends here, also within a line. `refuses`: doubts about times for which a line is not accepted.
    `state`: folder of the ledger; without one, nothing is known of earlier imports. `again`: ignore them.
    `rejected`: file for the lines that are not accepted. `pace`: makes of the post one that takes its time.
    """

    file: str
    form: Format
    fields: Fields
    name: str
    url: str
    write_key: str = ""
    control: str
    group: str = DEFAULT_GROUP
    lanes: int = 4
    batch: int = 1000
    marker: bool = True
    close: bool = False
    wait: bool = False
    stall_s: float = 120.0
    state: Path | None = None
    again: bool = False
    refuses: tuple[Doubt, ...] = ()
    dry_run: bool = False
    rejected: Path | None = None
    pace: Callable[[Post], Post] = lambda post: post


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of an import; `failure` says why it was not completed.

    The counts are those of the whole import: `earlier` fragments of them were accepted in an earlier run of
    it, which `notice` names. `sending_s` is the part of `seconds` until everything was acknowledged,
    including the marker. `left_open` says why no marker was sent, if the log needs one. `rejected_file` holds
    the lines that were not accepted, except for `left_out` of them. `failed_with`: the exit code
    of that failure.
    """

    tally: Tally = field(default_factory=Tally)
    markers: list[MarkerPosition] = field(default_factory=list)
    dry_run: bool = False
    earlier: int = 0
    notice: str | None = None
    retries: int = 0
    seconds: float = 0.0
    sending_s: float = 0.0
    delivered: bool | None = None
    left_open: str | None = None
    rejected_file: str | None = None
    left_out: int = 0
    failure: str | None = None
    failed_with: ExitCode = ExitCode.FAILED

    @property
    def ok(self) -> bool:
        """Whether every line was accepted and the import was completed."""
        return self.failure is None and self.tally.all_accepted

    @property
    def exit_code(self) -> ExitCode:
        """Also FAILED if a line was not accepted: a script must not take that for done."""
        if self.ok:
            return ExitCode.DONE
        return self.failed_with if self.failure else ExitCode.FAILED
