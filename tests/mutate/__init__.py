# SPDX-License-Identifier: BSD-3-Clause
"""Changes one line at a time and checks whether a test notices: see docs/testing.md."""
