# SPDX-License-Identifier: Apache-2.0
"""The access point, its hosts and whole labs as Mininet classes. Imports the folders next to it; they do not import
it."""
