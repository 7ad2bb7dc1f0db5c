# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash

# No devices.
