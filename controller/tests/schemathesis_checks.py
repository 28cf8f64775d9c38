# SPDX-License-Identifier: Apache-2.0
"""A check for schemathesis: 502 and 503 say that the switch or the database is away; any other 5xx is a defect."""

import schemathesis
from schemathesis import Case, CheckContext
from schemathesis.core.transport import Response


@schemathesis.check
def no_defect(ctx: CheckContext, response: Response, case: Case) -> None:
    """Fails for an answer that only a defect gives."""
    del ctx, case
    assert response.status_code < 500 or response.status_code in (502, 503), f"{response.status_code}"
