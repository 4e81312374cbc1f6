"""Reads lines that a grammar describes: access logs of web servers, and the logs of HAProxy and of AWS's ALB.

Pure. A grammar is a sequence of parts. A line fits as a whole or not at all, and the first part that does not
fit names the fault: whatever a line holds besides, nobody's request may end in another's session. Reading
takes time linear in the line's length: the parts repeat possessively. Used by `parsing/formats.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cli.importing.parsing.rows import ClientFrom, LineUnreadable

Values = dict[str, Any]
_TEXT = r'(?:[^"\\]++|\\.)*+'
_WORD = r'[^\s"]++'
_ENDS = "(?![^ ])"
# what servers add behind: words, quoted text, or both as in `rt="0.1"`; any other quote is a stray one
_TAIL = rf'(?: ++(?:[^\s"]*+"{_TEXT}"|{_WORD}){_ENDS})*+'
_TIME_IN_BRACKETS = re.compile(r"\[(?:\d\d?/[A-Za-z]{3}/\d{4}|\d{4}-\d\d-\d\d[T ]\d)", re.ASCII)
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PROTOCOL = re.compile(r"[A-Za-z]+/\d+(?:\.\d+)?", re.ASCII)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a line: its name in a fault, and its pattern, whose groups are fields."""

    name: str
    pattern: str


class Grammar:
    """A line is `parts`, one after the other; `finish` completes the fields and names those that it adds."""

    def __init__(self, parts: list[Part], finish: Callable[[Values], None], adds: tuple[str, ...]) -> None:
        self._parts = parts
        self.pattern = "".join(part.pattern for part in parts)
        self._line = re.compile(self.pattern, re.ASCII)
        self._finish = finish
        self.names = (*self._line.groupindex, *adds)

    def read(self, line: str) -> Values:
        """The fields of a line, those that it has. Raises LineUnreadable."""
        match = self._line.fullmatch(line)
        if match is None:
            raise self._fault(line)
        values: Values = {name: value for name, value in match.groupdict().items() if value is not None}
        if tail := values.pop("tail", "").strip():
            if _TIME_IN_BRACKETS.search(tail):
                raise _glued()
            values["tail"] = tail
        self._finish(values)
        return values

    def _fault(self, line: str) -> LineUnreadable:
        if "\r" in line:
            return LineUnreadable(
                "line-end", "a carriage return within the line: do lines end with CR alone?"
            )
        # a request may name a time, but such a line fits
        if len(_TIME_IN_BRACKETS.findall(line)) > 1:
            return _glued()
        at, part = 0, self._parts[0]
        for part in self._parts:
            match = re.compile(part.pattern, re.ASCII).match(line, at)
            if match is None:
                break
            at = match.end()
        found = line[at : at + _SHOWN]
        # a blank parts all parts, so a quote was closed too early
        if at and line[at - 1] == '"' and found[:1] not in ("", " "):
            return LineUnreadable("quotes", f"an unescaped quote is followed by {found!r}")
        if '"' in found and part is self._parts[-1]:
            return LineUnreadable("quotes", f"quotes that do not match: {found!r}")
        return LineUnreadable("malformed", f"{part.name} should follow, but there is {found!r}")


def access_log(client_from: ClientFrom = "host", *, has_vhost: bool = False) -> Grammar:
    """The common and the combined format, with what servers add behind as `tail`."""
    address = r'[^\s",]++'
    host = f"{address}(?:, ?{address})*+" if client_from == "forwarded" else r'[^\s"]++'
    parts = [
        Part("a virtual host", r"(?P<vhost>\S++) ") if has_vhost else Part("", ""),
        Part("a host", f"(?P<host>{host})"),
        Part("a logname", rf" (?P<logname>{_WORD})"),
        Part("a user and a time in brackets", rf' (?P<user>"{_TEXT}"|[^\s"\[\]]++(?: ++[^\s"\[\]]++)*+) \['),
        Part("a time in brackets", r'(?P<time>[^\[\]"]++)\]'),
        Part("a request in quotes", rf' "(?P<request>{_TEXT})"'),
        Part("a status", r" (?P<status>\d{3}|-)"),
        Part("a number of bytes", rf" (?P<bytes>\d++|-){_ENDS}"),
        Part("", rf'(?: (?P<referer>"{_TEXT}"|-) (?P<useragent>"{_TEXT}"|-){_ENDS})?'),
        Part("the end of the line", f"(?P<tail>{_TAIL})"),
    ]

    def finish(values: Values) -> None:
        _check_words(values, has_vhost=has_vhost)
        _split_request(values)
        for name in ("status", "bytes"):
            values[name] = None if values[name] == "-" else int(values[name])
        for name in {"referer", "useragent", "user"} & values.keys():
            values[name] = _unquoted(values[name])
        if client_from != "host":
            values["client"] = _client(values, client_from)

    adds = ("method", "path", "protocol", *(["client"] if client_from != "host" else []))
    return Grammar([part for part in parts if part.pattern], finish, adds)


def _check_words(values: Values, *, has_vhost: bool) -> None:
    """Raises LineUnreadable if words before the time are not host, logname and user."""
    words = values["user"].split()
    # a user's name may have blanks; the logname is `-` wherever identd has died out
    if len(words) == 1 or values["user"].startswith('"') or (values["logname"] == "-" and words[0] != "-"):
        return
    if values["host"].endswith(","):
        raise LineUnreadable("forwarded", "there are several addresses: give --client-from forwarded")
    found = f"{values['host']} {values['logname']} {values['user']}"
    how = "" if has_vhost else ": a virtual host in front needs --format access-log-vhost"
    raise LineUnreadable("vhost", f"{found[:_SHOWN]!r} is more than host, logname and user{how}")


def _client(values: Values, client_from: ClientFrom) -> str:
    """The first of the forwarded addresses: the client, as the proxies in front say."""
    listed = str(values["host"])
    if client_from == "tail":
        first = re.match(rf'"({_TEXT})"|\S+', values.get("tail", ""))
        if first is None:
            raise LineUnreadable("key", "nothing follows the user agent, where --client-from has the client")
        listed = first[1] if first[1] is not None else first[0]
        # a request that no proxy has forwarded
        if listed == "-":
            listed = str(values["host"])
    return listed.split(",")[0].strip()


def haproxy() -> Grammar:
    """HAProxy's `option httplog`, with or without what syslog puts in front."""
    parts = [
        Part("", r'(?:[^"\[\]]*+\[\d++\]: )?'),
        Part("a client with its port", f"(?P<peer>{_WORD})"),
        Part("a time in brackets", r' \[(?P<time>[^\[\]"]++)\]'),
        Part("a frontend, a backend and its server", rf" (?P<frontend>{_WORD}) (?P<backend>{_WORD})"),
        Part("timers", r" (?P<timers>[-+\d/]++)"),
        Part("a status", r" (?P<status>-?\d++)"),
        Part("a number of bytes", r" \+?(?P<bytes>\d++)"),
        Part("cookies and the state at the end", rf" {_WORD} {_WORD} (?P<state>{_WORD})"),
        Part("connections and queues", r" (?P<connections>[+\d/]++) (?P<queues>[\d/]++)"),
        Part("a request in quotes", rf'(?P<headers>(?: \{{[^}}"]*+\}})*+) "(?P<request>{_TEXT})"'),
        Part("the end of the line", f"(?P<tail>{_TAIL})"),
    ]

    def finish(values: Values) -> None:
        _split_request(values)
        values |= {"status": int(values["status"]), "bytes": int(values["bytes"])}
        values["client"] = values["peer"].rpartition(":")[0]

    return Grammar(parts, finish, ("method", "path", "protocol", "client"))


def alb() -> Grammar:
    """AWS's Application Load Balancer; the fields after the trace are the `tail`."""
    plain = (
        *("type", "time", "elb", "peer", "target", "request_time", "target_time", "response_time"),
        *("status", "target_status", "received_bytes", "sent_bytes"),
    )
    parts = [
        *(Part(f"the field {name}", rf"(?P<{name}>{_WORD}) ") for name in plain),
        Part("a request in quotes", rf'"(?P<request>{_TEXT})"'),
        Part("a user agent in quotes", rf' "(?P<useragent>{_TEXT})"'),
        Part(
            "cipher, protocol and target group", rf" (?P<cipher>{_WORD}) (?P<tls>{_WORD}) (?P<group>{_WORD})"
        ),
        Part("a trace in quotes", rf' "(?P<trace>{_TEXT})"'),
        Part("the end of the line", f"(?P<tail>{_TAIL})"),
    ]

    def finish(values: Values) -> None:
        _split_request(values)
        values["client"] = values["peer"].rpartition(":")[0]

    return Grammar(parts, finish, ("method", "path", "protocol", "client"))


def _split_request(values: Values) -> None:
    """Adds method, path and protocol; scanners send anything, and such a line is a visit without them."""
    method, _, rest = str(values["request"]).partition(" ")
    path, _, protocol = rest.rpartition(" ")
    # without a protocol (HTTP/0.9) the path is all that follows; with one, it may have blanks
    if not path or not _PROTOCOL.fullmatch(protocol):
        path, protocol = rest, ""
    if path and _METHOD.fullmatch(method):
        values |= {"method": method, "path": path, "protocol": protocol}


def _unquoted(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text


def _glued() -> LineUnreadable:
    return LineUnreadable("glued", "a second time in brackets: two lines without a line end between them?")
