/* SPDX-License-Identifier: Apache-2.0 */
/* The documents' C sample (tent-qos), made whole: a READ of our own segment. Ends with "ok". */
#include <stdio.h>
#include <string.h>

#include "tent/transfer_engine.h"

static int failed(const char* what) {
    fprintf(stderr, "FAIL: %s: %s\n", what, tent_last_error());
    return 1;
}

int main(void) {
    enum { kSize = 300000 };
    tent_set_config("rpc_server_hostname", "127.0.0.1");
    tent_engine_t engine = tent_create_engine();
    if (!engine || !tent_available(engine)) return failed("tent_create_engine");
    void *buffer = NULL, *remote = NULL;
    if (tent_allocate_memory(engine, &buffer, kSize, "cpu:0")) return failed("tent_allocate_memory");
    if (tent_allocate_memory(engine, &remote, kSize, NULL)) return failed("tent_allocate_memory");
    memset(remote, 'r', kSize);
    char name[64];
    tent_segment_id_t segment_id = 99;
    if (tent_segment_name(engine, name, sizeof(name))) return failed("tent_segment_name");
    if (tent_open_segment(engine, &segment_id, name) || segment_id != 0) return failed("tent_open_segment");

    /* Create request with priority */
    tent_request_t req = {
        .opcode = OPCODE_READ,
        .source = buffer,
        .target_id = segment_id,
        .target_offset = (uint64_t)remote,
        .length = kSize,
        .priority = 0 /* 0=HIGH, 1=MEDIUM, 2=LOW */
    };

    /* Submit the request */
    tent_batch_id_t batch_id = tent_allocate_batch(engine, 1);
    if (tent_submit(engine, batch_id, &req, 1)) return failed("tent_submit");

    tent_status_t status;
    do {
        if (tent_overall_status(engine, batch_id, &status)) return failed("tent_overall_status");
    } while (status.status == STATUS_PENDING);
    if (status.status != STATUS_COMPLETED || memcmp(buffer, remote, kSize) != 0) return failed("the transfer");
    if (tent_submit(engine, batch_id, &req, 1) != -TENT_TOO_MANY_REQUESTS) return failed("a full batch");
    if (tent_free_batch(engine, batch_id)) return failed("tent_free_batch");
    if (tent_free_memory(engine, buffer) || tent_free_memory(engine, remote)) return failed("tent_free_memory");
    tent_destroy_engine(engine);
    puts("ok");
    return 0;
}
