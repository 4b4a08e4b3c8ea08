// SPDX-License-Identifier: Apache-2.0
// Acknowledgement of events. Destroying an object waits until every event that it delivered has been acknowledged. The
// mutex and the condition variable are members of rdma-core's structs.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace rove::verbs {

template <class Object>
void init_acks(Object& object) {
    pthread_mutex_init(&object.mutex, nullptr);
    pthread_cond_init(&object.cond, nullptr);
}

template <class Object>
void acknowledge(Object& object, uint32_t& completed, uint32_t count) {
    pthread_mutex_lock(&object.mutex);
    completed += count;
    pthread_cond_signal(&object.cond);
    pthread_mutex_unlock(&object.mutex);
}

template <class Object>
void wait_acknowledged(Object& object, const uint32_t& completed, const uint32_t& delivered) {
    pthread_mutex_lock(&object.mutex);
    while (completed != delivered) pthread_cond_wait(&object.cond, &object.mutex);
    pthread_mutex_unlock(&object.mutex);
}

}  // namespace rove::verbs
