# SPDX-License-Identifier: Apache-2.0
"""The access point, its hosts and whole labs as Mininet classes. It knows the rooms beside it; they do not know it."""
