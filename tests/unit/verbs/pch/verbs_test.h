// SPDX-License-Identifier: Apache-2.0
// The precompiled header, with the includes that nearly every test here needs.
#include "fixture.h"
#include "verbs/objects.h"
