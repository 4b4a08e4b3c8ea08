// SPDX-License-Identifier: Apache-2.0
// Precompiled: what nearly every test here includes.
#include "transport/pair.h"
