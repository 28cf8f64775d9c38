# SPDX-License-Identifier: Apache-2.0
"""The laws of feedback, a module each. Pure: numbers and time in, probabilities out; nothing of the controller.

    base    interface of a law to the loop
    paper   the law of the paper, as it is written there
    pi2     the default law; docs/controller/laws.md says why

The paper is "Protecting Download Traffic from Upload Traffic over Asymmetric Wireless Links" (2018), sections 3.1 and
3.2. Its equations are known only where its prose says what they hold; the numbers in parentheses are its own.
"""

from .base import Law
from .paper import Paper
from .pi2 import Pi2

LAWS: dict[str, Law] = {law.name: law for law in (Paper(), Pi2())}
"""The laws by their names in the configuration (`ncr.law`)."""
