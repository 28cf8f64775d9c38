# SPDX-License-Identifier: Apache-2.0
"""HTTP of the client: a token, problem details, server-sent events."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote as quoted

import httpx

T = TypeVar("T")

SECONDS = 15.0
SILENCE_SECONDS = 40.0
"""Seconds without data after which a stream is lost; it is quiet for 15 s at most."""
PAGE = 500


NOT_YET = 202


class ApiError(Exception):
    """An answer that is an error (RFC 9457), or no answer: `status` is 0 then. The text is one line."""

    def __init__(self, status: int, detail: str, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.problem = problem or {}


def quote(part: object) -> str:
    """Return one part of a path; raises `ApiError` for `..` and the like, which would lead to another resource."""
    if str(part) in ("", ".", ".."):
        raise ApiError(404, f"{str(part)!r} is no name")
    try:
        return quoted(str(part), safe="")
    except UnicodeEncodeError:
        raise ApiError(404, f"{part!r} is no name") from None


class Transport:
    """A connection to one controller, as a context manager.

    Args:
        url: as `https://controller:8443`.
        token: of a viewer, operator or admin.
        ca: certificate authority of the controller, PEM; None for those that this machine trusts.
    """

    def __init__(self, url: str, token: str, ca: Path | None = None) -> None:
        import ssl

        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=str(ca)) if ca else True
        self.url = url.rstrip("/")
        self.total: int | None = None
        """Length of the list of which the last answer was a part."""
        self.etag: str | None = None
        """ETag of the last answer, for `if_match`."""
        self.in_effect = True
        """False: the last answer was to a change that is kept, and was not in effect within `wait` seconds."""
        if not (token.isascii() and token.isprintable()):
            raise ApiError(0, "the token has other characters than a token has")
        try:
            self._http = httpx.Client(
                base_url=self.url, headers={"authorization": f"Bearer {token}"}, verify=verify, timeout=SECONDS
            )
        except httpx.InvalidURL as error:
            raise ApiError(0, f"{self.url}: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """Send one request; returns the JSON of the answer, or None for an empty one; raises `ApiError`."""
        try:
            answer = self._http.request(method, path, params=_given(query), json=body, headers=_given(headers))
        except httpx.HTTPError as error:
            raise ApiError(0, f"{self.url}: {error or type(error).__name__}") from None
        except ValueError as error:
            raise ApiError(0, f"the request cannot be sent: {error}") from None
        if not answer.is_success:
            raise _problem(answer)
        total = answer.headers.get("x-total-count")
        self.total = int(total) if total else None
        self.etag = answer.headers.get("etag")
        self.in_effect = answer.status_code != NOT_YET
        return answer.json() if answer.content else None

    def every(self, call: Callable[..., list[T]], *arguments: Any, **options: Any) -> list[T]:
        """Return all parts of a long list: `client.every(client.get_flows, "ap1", active=True)`."""
        found: list[T] = []
        while True:
            found += call(*arguments, **options, limit=PAGE, offset=len(found))
            if self.total is None or len(found) >= self.total:
                return found

    def stream(self, path: str, query: Mapping[str, Any] | None = None) -> Iterator[tuple[str, Any]]:
        """Yield server-sent events as (event, data), until the controller ends; raises `ApiError`."""
        timeout = httpx.Timeout(SECONDS, read=SILENCE_SECONDS)
        try:
            with self._http.stream("GET", path, params=_given(query), timeout=timeout) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _problem(answer)
                event = ""
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        event = line.removeprefix("event: ")
                    elif line.startswith("data: "):
                        yield event, json.loads(line.removeprefix("data: "))
        except httpx.HTTPError as error:
            raise ApiError(0, f"{self.url}: {error or type(error).__name__}") from None


def _given(values: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _problem(answer: httpx.Response) -> ApiError:
    try:
        problem = answer.json()
        return ApiError(answer.status_code, str(problem["detail"]), problem)
    except (ValueError, KeyError, TypeError):
        return ApiError(answer.status_code, f"{answer.url}: {answer.status_code} {answer.reason_phrase}")
