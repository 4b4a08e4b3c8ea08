// SPDX-License-Identifier: Apache-2.0
// The precompiled header: includes of nearly every test here.
#include "transport/pair.h"
