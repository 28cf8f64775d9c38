# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of the switch, compared with a bare forwarder, BMv2 or another build of itself."""
