# SPDX-License-Identifier: Apache-2.0
"""A typed client of the REST API: `Client(url, token).get_flows("ap1", active=True)`.

It needs httpx and nothing of the controller; `models` and `operations` are made from the OpenAPI document.
"""

from .operations import Client
from .transport import ApiError

__all__ = ["ApiError", "Client"]
