# SPDX-License-Identifier: Apache-2.0
"""Commands of an installed distribution."""

import sys


def apctl() -> None:
    """Run the controller's command line."""
    from accesspoint.controller.apctl.__main__ import main

    sys.exit(main())


def controller() -> None:
    """Run the controller."""
    from accesspoint.controller.__main__ import main

    main()


def lab() -> None:
    """Run a lab with the Mininet prompt."""
    from accesspoint.topologies.lab import main

    sys.exit(main())


def experiments() -> None:
    """Run experiments by their names."""
    from accesspoint.experiments.__main__ import main

    sys.exit(main())
