// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every experiment includes.
#include "experiments.h"
#include "testbed.h"
