/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/commands.h"

const char *const k3ring_version = "0.1.0";
const char *const k3ring_version_day = "2026-11-30";
