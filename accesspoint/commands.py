# SPDX-License-Identifier: Apache-2.0
"""The commands of an installed distribution."""

import sys


def apctl() -> None:
    """The command line of the controller."""
    from accesspoint.controller.apctl.__main__ import main

    sys.exit(main())


def controller() -> None:
    """The controller."""
    from accesspoint.controller.__main__ import main

    main()


def lab() -> None:
    """A lab with the Mininet prompt."""
    from accesspoint.topologies.lab import main

    sys.exit(main())


def experiments() -> None:
    """Experiments by their names."""
    from accesspoint.experiments.__main__ import main

    sys.exit(main())
