# SPDX-License-Identifier: Apache-2.0
"""The log on stderr: lines for people, or one JSON object a line with the names that apswitch's has."""

import json
import logging
from datetime import UTC, datetime
from enum import StrEnum


class LogFormat(StrEnum):
    """Format of the log's lines."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """`timestamp` (RFC 3339), `level`, `target` (the module), `message`, and `access_point` and `exception` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one line."""
        line = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": "WARN" if record.levelno == logging.WARNING else record.levelname,
            "target": record.name,
            "message": record.getMessage(),
        }
        if access_point := getattr(record, "access_point", None):
            line["access_point"] = access_point
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def begin(log_format: LogFormat) -> None:
    """Log warnings and worse."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == LogFormat.JSON else logging.Formatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # finsy and grpc repeat, with tracebacks, what this program logs in one line.
    logging.getLogger("finsy").setLevel(logging.CRITICAL)
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
