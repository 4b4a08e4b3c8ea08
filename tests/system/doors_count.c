// SPDX-License-Identifier: Apache-2.0
// A program that is linked with libibverbs, allocates and frees. It prints the number of devices as a JSON line.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    int n = -1;
    struct ibv_device** list = ibv_get_device_list(&n);
    struct ibv_context* context = n > 0 ? ibv_open_device(list[0]) : NULL;
    if (context) ibv_close_device(context);
    if (list) ibv_free_device_list(list);
    char* memory = malloc(100000);
    memset(memory, 1, 100000);
    printf("{\"devices\": %d, \"opened\": %s}\n", n, context && memory[99999] ? "true" : "false");
    free(memory);
    return 0;
}
