"""Judges an answer: its form, its indexes, and what was stored, by an independent reading of the body.

That reading uses the standard library's parser, made strict; it trusts no code that the door uses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from shared.model.fragments import parse_fragment
from tests.fuzz.face import Answer, Face
from tests.fuzz.posts import Post
from tests.unit.producer.face import TABLE

BOM = b"\xef\xbb\xbf"
SPACE = b" \t\r\n"
REASONS = {"malformed", "invalid", "encoding", "nesting", "key", "id", "time", "size"}
REFUSED = {400, 401, 403, 404, 405, 408, 413, 415, 421, 422, 429}


def wrong_with(post: Post, answer: Answer, face: Face) -> list[str]:
    """One text for each broken promise; empty if there are none."""
    if answer.status is None:
        return ([] if post.is_gone else ["no answer"]) + (["something was kept"] if face.sink.kept else [])
    if face.door.inflight_bytes:
        return [f"{face.door.inflight_bytes} bytes stay in flight"]
    if answer.status not in {200, 204, 503} | REFUSED:
        return [f"the status {answer.status}"]
    if (
        int(answer.headers.get(b"content-length", len(answer.body))) != len(answer.body)
        and post.method != "HEAD"
    ):
        return ["content-length is not the body's"]
    wrong = list(_of_the_form(answer)) if post.method != "HEAD" else []
    if post.path != "/fragments" or post.method != "POST":
        return wrong
    return wrong or [*_of_the_result(post, answer, face), *_of_what_was_kept(post, face)]


def _of_the_form(answer: Answer) -> Iterator[str]:
    if answer.status in (200, 204):
        return
    if answer.headers.get(b"content-type") != b"application/problem+json":
        yield f"{answer.status} is not a problem document"
        return
    body = json.loads(answer.body)
    if body["status"] != answer.status or not body["type"].startswith("urn:baton:"):
        yield f"the problem document says {body}"
    if not (body["title"] and isinstance(body["detail"], str) and body["detail"]):
        yield f"the problem document says nothing: {body}"
    if answer.status in (429, 503) and not answer.headers.get(b"retry-after", b"").isdigit():
        yield f"{answer.status} without Retry-After"


def _of_the_result(post: Post, answer: Answer, face: Face) -> Iterator[str]:
    """The indexes of what was stored, rejected, and not stored are 0 … n - 1, each once."""
    body = json.loads(answer.body)
    is_partial = answer.status == 503 and "unstored" in body
    if answer.status == 503 and not (post.is_down or post.mute):
        yield f"503 although the sink is well: {body}"
    if post.door == "guarded" and not post.is_keyed:
        if answer.status not in (401, 403):
            yield f"{answer.status} without the write key"
        if face.sink.kept:
            yield "kept without the write key"
        return
    if answer.status not in (200, 422) and not is_partial:
        if face.sink.kept:
            yield f"{answer.status}, and {len(face.sink.kept)} fragments were kept"
        if post.must_accept is not None and not (post.is_down or post.mute or face.is_narrow):
            yield f"valid fragments, and {answer.status}: {body}"
        return
    if answer.status == 422 and "rejected" not in body:
        yield f"422 without reasons: {body}"
        return
    kept, refused = [index for index, *_ in face.sink.kept], [item["index"] for item in body["rejected"]]
    if body["accepted"] != len(kept):
        yield f"accepted {body['accepted']}, kept {len(kept)}"
    if answer.status == 422 and (kept or not refused):
        yield "422 although not all were refused"
    everyone = sorted(kept + refused + body.get("unstored", []))
    if everyone != list(range(len(everyone))) or refused != sorted(refused):
        yield f"the indexes are {everyone[:50]}"
    if not all(item["reason"] in REASONS and item["detail"] for item in body["rejected"]):
        yield f"reasons: {body['rejected'][:5]}"
    if post.must_accept is not None and not face.is_narrow and (refused or len(everyone) != post.must_accept):
        yield f"{post.must_accept} valid fragments, of {len(everyone)} were refused {body['rejected'][:3]}"
    if post.plain is not None and not any(
        len(items) == len(everyone) and all(items[index] == value for index, _, _, value in face.sink.kept)
        for items in _readings(post.plain)
    ):
        yield f"what was kept is not what was posted: {face.sink.kept[:3]}"


def _of_what_was_kept(post: Post, face: Face) -> Iterator[str]:
    for index, stream, key, value in face.sink.kept:
        if len(value) > face.limits.max_fragment_bytes:
            yield f"{index} has {len(value)} bytes"
        if parse_fragment(value).key.encode() != key or TABLE.stream_for(key) != stream:
            yield f"{index} was kept for {key!r} in stream {stream}"
        try:
            said = _read_strictly(value)
        except RecursionError:
            continue  # deeper than this reader's stack; parse_fragment has read it
        except ValueError as error:
            yield f"{index} is not strict JSON: {error}: {value[:200]!r}"
            continue
        if not isinstance(said, dict) or said["key"].encode() != key:
            yield f"{index} says {said['key']!r}, kept for {key!r}"


def _readings(plain: bytes) -> Iterator[list[bytes]]:
    """Every way to read the body: as one fragment, as lines, as an array, as an array of malformed items."""
    plain = plain.removeprefix(BOM)
    yield [plain.strip(SPACE)]
    yield [line for piece in plain.split(b"\n") if (line := piece.strip(SPACE))]
    try:
        yield list(_elements(plain.decode(errors="surrogateescape")))
    except (ValueError, IndexError):
        pass
    except RecursionError:
        yield []
    yield list(_between_commas(plain.strip(SPACE)))


def _between_commas(array: bytes) -> Iterator[bytes]:
    depth, start, is_text, is_escaped = 0, 1, False, False
    for at, char in enumerate(array):
        if is_text:
            is_text = is_escaped or char != ord('"')
            is_escaped = not is_escaped and char == ord("\\")
        elif char == ord('"'):
            is_text = True
        else:
            depth += (char in b"[{") - (char in b"]}")
            if (depth == 1 and char == ord(",")) or depth == 0:
                yield array[start:at].strip(SPACE)
                start = at + 1


def _elements(text: str) -> Iterator[bytes]:
    read = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode
    space = SPACE.decode()
    at = len(text) - len(text.lstrip(space)) + 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(space))
        if text[at] == "]":
            return
        _, end = read(text, at)
        yield text[at:end].encode(errors="surrogateescape")
        at = end + len(text[end:]) - len(text[end:].lstrip(space))
        at += text[at] == ","


def _read_strictly(value: bytes) -> Any:
    def no_constant(name: str) -> Any:
        raise ValueError(name)

    said = json.loads(value.decode(), parse_constant=no_constant, parse_int=str, parse_float=str)
    # a lone surrogate cannot be encoded
    json.dumps(said, ensure_ascii=False).encode()
    return said
