// SPDX-License-Identifier: Apache-2.0
// The precompiled headers: nearly every file of the library includes them.
#include "port/ethdev/ethdev.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"
