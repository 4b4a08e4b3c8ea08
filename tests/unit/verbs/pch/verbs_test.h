// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every test here includes.
#include "fixture.h"
#include "verbs/objects.h"
