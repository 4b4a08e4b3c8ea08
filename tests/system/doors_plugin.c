// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked with libibverbs.
#include <infiniband/verbs.h>

struct ibv_device** plugin_devices(int* count) {
    return ibv_get_device_list(count);
}
