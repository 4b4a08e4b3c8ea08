// SPDX-License-Identifier: Apache-2.0
// Precompiled headers that nearly every file of the library includes.
#include "verbs/objects.h"
#include "verbs/verbs.h"
