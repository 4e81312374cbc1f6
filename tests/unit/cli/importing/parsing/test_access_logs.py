"""Access logs: what fits the grammar, and what is refused by a reason that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from re import _constants, _parser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.parsing import grammars
from cli.importing.parsing.formats import USUAL_FIELDS, Format, parser_for
from cli.importing.parsing.rows import ClientFrom, Fields, LineUnreadable, Row

AT = "[10/Nov/2025:10:00:00 +0000]"
LINE = f'192.0.2.1 - - {AT} "GET /a HTTP/1.1" 200 100 "-" "UA"'


def parsed(line: str, form: Format = "access-log", client_from: ClientFrom = "host", **more: Any) -> Row:
    """The row of a line, with the format's usual fields."""
    key, time = USUAL_FIELDS[form]
    fields = Fields(
        key=key if client_from == "host" else "client", time=time, client_from=client_from, **more
    )
    row = parser_for(form, fields).feed(line.encode())
    assert row is not None
    return row


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"shop.example.com:443 {LINE}", "vhost"),
        (f'203.0.113.7, 10.0.0.1 - - {AT} "GET /a HTTP/1.1" 200 1', "forwarded"),
        (LINE + LINE, "glued"),
        (f"{LINE} {LINE}", "glued"),
        (LINE[:-20] + LINE, "glued"),
        (f"192.0.2.84 - - [10/Nov/20{LINE}", "glued"),
        (f'192.0.2.86 - - {AT} "GET /f{LINE}', "glued"),
        (f'192.0.2.82 - - {AT} "GET /c HTTP/1.1" 200 1{LINE}', "glued"),
        (f"{LINE}\r{LINE}", "line-end"),
        (LINE.replace('"UA"', '""echocrawl 2.0""'), "quotes"),
        (LINE.replace('"UA"', '"Mozilla "quoted" end"'), "quotes"),
        (LINE.replace("/a", '/q"x'), "quotes"),
        (LINE.replace(" 200 ", " ok "), "malformed"),
        (LINE.replace(AT, "10/Nov/2025"), "malformed"),
        (LINE.replace("192.0.2.1", "-"), "key"),
        (LINE.replace("192.0.2.1", "unix:"), "key"),
    ],
)
def test_a_line_that_does_not_fit_is_refused_by_a_reason_that_names_it(line: str, reason: str) -> None:
    """Nobody's request may end in the session of a virtual host, of another's line, or of nobody."""
    with pytest.raises(LineUnreadable) as caught:
        parsed(line)

    assert caught.value.reason == reason


@given(st.integers(0, len(LINE)), st.integers(0, len(LINE)))
def test_of_two_lines_without_a_line_end_between_them_none_gets_the_key_of_the_other(
    end: int, begin: int
) -> None:
    """Wherever the first breaks off and the second begins, the client of the row names its own request."""
    first, second = LINE, LINE.replace("192.0.2.1", "host-two").replace("/a", "/b")

    try:
        row = parsed(first[:end] + second[begin:])
    except LineUnreadable:
        return

    path = json.loads(row.data).get("path", "")
    assert not (row.key == "192.0.2.1" and path == "/b" and end < len(first) - 40 < begin)
    assert not (row.key == "host-two" and path == "/a")


@pytest.mark.parametrize(
    ("request_line", "method", "path", "protocol"),
    [
        ("GET /files/report 2016 final.pdf HTTP/1.1", "GET", "/files/report 2016 final.pdf", "HTTP/1.1"),
        ("M-SEARCH * HTTP/1.1", "M-SEARCH", "*", "HTTP/1.1"),
        ("get /lower", "get", "/lower", ""),
        ("-", None, None, None),
        ("", None, None, None),
    ],
)
def test_the_path_is_all_between_method_and_protocol(
    request_line: str, method: str | None, path: str | None, protocol: str | None
) -> None:
    """Blanks in it included; what is no request stays a visit without a path."""
    data = json.loads(parsed(LINE.replace("GET /a HTTP/1.1", request_line)).data)

    assert (data.get("method"), data.get("path"), data.get("protocol")) == (method, path, protocol)


def test_what_follows_the_user_agent_is_kept_as_the_tail() -> None:
    """Servers add fields of their own; a referer may come without quotes."""
    data = json.loads(parsed(LINE.replace('"-" "UA"', '- "w3m" rt="0.1" "203.0.113.77" 0.123')).data)

    assert (data["referer"], data["useragent"]) == ("-", "w3m")
    assert data["tail"] == 'rt="0.1" "203.0.113.77" 0.123'


@pytest.mark.parametrize(
    ("line", "form", "client_from", "key"),
    [
        (f"shop.example.com:443 {LINE}", "access-log-vhost", "host", "192.0.2.1"),
        (f'203.0.113.7, 10.0.0.1 - - {AT} "GET / HTTP/1.1" 200 1', "access-log", "forwarded", "203.0.113.7"),
        (f'{LINE} "203.0.113.7, 10.0.0.1"', "access-log", "tail", "203.0.113.7"),
        (f'{LINE} "-"', "access-log", "tail", "192.0.2.1"),
        (LINE.replace("- - [", '- "" ['), "access-log", "host", "192.0.2.1"),
        (LINE.replace("- - [", "- first last ["), "access-log", "host", "192.0.2.1"),
    ],
)
def test_forms_with_the_client_elsewhere_are_read_when_asked(
    line: str, form: Format, client_from: ClientFrom, key: str
) -> None:
    """A virtual host in front, and the forwarded address in place of the host or at the end."""
    assert parsed(line, form, client_from).key == key


@pytest.mark.parametrize(
    ("form", "line", "key", "path"),
    [
        (
            "haproxy",
            "Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] in be/srv"
            ' 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html HTTP/1.1"',
            "10.0.1.2",
            "/index.html",
        ),
        (
            "alb",
            "https 2009-02-06T12:14:14.655000Z app/lb/50 10.0.1.2:2817 10.0.0.1:80 0.08 0.04 0.3 200 200 0 5"
            ' "GET https://e.org:443/ HTTP/1.1" "curl/7.46.0" ECDHE TLSv1.2 arn:aws:x "Root=1" "e.org" "-" 1',
            "10.0.1.2",
            "https://e.org:443/",
        ),
    ],
)
def test_logs_of_load_balancers_are_read_by_name(form: Format, line: str, key: str, path: str) -> None:
    """The client without its port is the key."""
    row = parsed(line, form, zone="UTC")

    assert (row.key, row.time_ms) == (key, 1_233_922_454_655)
    assert json.loads(row.data)["path"] == path


@pytest.mark.parametrize("grammar", [grammars.access_log("forwarded"), grammars.haproxy(), grammars.alb()])
def test_reading_takes_time_linear_in_the_length_of_a_line(grammar: grammars.Grammar) -> None:
    """No repetition without a bound gives back what it has taken, so none is tried in a second way."""

    def repetitions(node: Any) -> Iterator[Any]:
        if isinstance(node, tuple) and node and node[0] is _constants.MAX_REPEAT:
            yield node[1][1]
        if isinstance(node, list | tuple | _parser.SubPattern):
            for inner in node:
                yield from repetitions(inner)

    found = list(repetitions(_parser.parse(grammar.pattern)))

    assert [most for most in found if most is _constants.MAXREPEAT] == []
