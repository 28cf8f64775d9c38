# SPDX-License-Identifier: Apache-2.0
"""The commands of an installed distribution."""

import sys


def apctl() -> None:
    """The command line of the controller."""
    from controller.apctl.__main__ import main

    sys.exit(main())


def controller() -> None:
    """The controller."""
    from controller.__main__ import main

    main()


def lab() -> None:
    """A lab with the Mininet prompt."""
    from topologies.lab import main

    sys.exit(main())


def experiments() -> None:
    """Experiments by their names."""
    from experiments.__main__ import main

    sys.exit(main())
