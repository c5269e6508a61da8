# SPDX-License-Identifier: BSD-3-Clause
"""One line changed at a time, and the question whether any test notices: see docs/testing.md."""
