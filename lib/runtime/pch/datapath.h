// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every file of the library includes.
#include "port/ethdev/ethdev.h"
#include "runtime/runtime.h"
#include "runtime/worker_core.h"
