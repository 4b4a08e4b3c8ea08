// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every file of the library includes.
#include "datapath/ports/ethdev.h"
#include "datapath/runtime.h"
#include "datapath/worker_core.h"
