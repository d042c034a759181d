/* SPDX-License-Identifier: Apache-2.0 */
#include "core/cli/commands.h"

const char *const k3ring_version = "0.1.0";
