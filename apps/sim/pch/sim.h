// SPDX-License-Identifier: Apache-2.0
// The precompiled header: includes of nearly every experiment.
#include "experiments.h"
#include "testbed.h"
