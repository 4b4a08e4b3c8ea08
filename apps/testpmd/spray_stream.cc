// SPDX-License-Identifier: Apache-2.0
#include "spray_stream.h"

#include <algorithm>
#include <cstring>

#include "session.h"

namespace rove::testpmd {

namespace {

constexpr uint8_t kStale = 0xEE;
constexpr const char* kStates[] = {"INITIAL", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};

// Returns the part of `whole` that goes to number `index` of `parts`.
uint64_t part(uint64_t whole, uint32_t parts, uint32_t index) {
    return whole / parts + (index < whole % parts);
}

}  // namespace

void SprayStream::Counts::add(const Counts& other) {
    submitted += other.submitted;
    completed += other.completed;
    failed += other.failed;
    under_way += other.under_way;
    wrong += other.wrong;
    for (size_t i = 0; i < kPriorities; ++i) {
        classes[i].reads += other.classes[i].reads;
        classes[i].writes += other.classes[i].writes;
        classes[i].latency.add(other.classes[i].latency);
    }
}

SprayStream::SprayStream(const Options& options, tent::TransferEngine& engine, tent::SegmentID target, uint32_t thread,
                         uint8_t* memory, uint64_t remote)
    : options_(options),
      plan_(options.plan),
      engine_(engine),
      target_(target),
      thread_(thread),
      memory_(memory),
      remote_(remote),
      count_(part(options.count, plan_.qps, thread)),
      interval_ns_(options.rate_gbps > 0 ? plan_.size * 8.0 * plan_.qps / options.rate_gbps : 0),
      places_(plan_.depth / options.batch),
      messages_(plan_.depth),
      random_(thread + 1),
      priority_(options.priorities.begin(), options.priorities.end()),
      reads_(options.read_share) {
    for (uint32_t i = 0; i < places_.size(); ++i) places_[i].first = i * options.batch;
    for (uint32_t slot = 0; slot < plan_.depth; ++slot) {
        messages_[slot] = slot;
        fill(local(slot, false), plan_.size, thread_, slot);
    }
}

uint8_t* SprayStream::local(uint32_t slot, bool returned) const {
    return memory_ + (size_t{slot} + (returned ? plan_.depth : 0)) * plan_.size;
}

bool SprayStream::step(uint64_t now_ns, bool submit) {
    if (started_ns_ == 0) started_ns_ = now_ns;
    const bool over =
        (options_.duration_s > 0 && static_cast<double>(now_ns - started_ns_) >= options_.duration_s * 1e9) ||
        (options_.count != 0 && counts_.submitted == count_);
    for (Place& place : places_) {
        if (place.batch != 0) look(place, now_ns);
        if (place.batch != 0 || !submit || over) continue;
        if (const uint32_t requests = due(now_ns); requests != 0) begin(place, requests, now_ns);
    }
    return !over;
}

// Returns a whole batch, unless the run has fewer requests left or the rate permits fewer.
uint32_t SprayStream::due(uint64_t now_ns) const {
    uint64_t count = options_.batch;
    if (options_.count != 0) count = std::min(count, count_ - counts_.submitted);
    if (interval_ns_ != 0) {
        const auto offered = static_cast<uint64_t>(static_cast<double>(now_ns - started_ns_) / interval_ns_) + 1;
        count = std::min(count, offered > counts_.submitted ? offered - counts_.submitted : 0);
    }
    return static_cast<uint32_t>(count);
}

void SprayStream::begin(Place& place, uint32_t requests, uint64_t now_ns) {
    // With a rate, a request begins when it was due, so that the time it waited here for a slow network counts.
    place.begun_ns = interval_ns_ != 0
                         ? started_ns_ + static_cast<uint64_t>(static_cast<double>(counts_.submitted) * interval_ns_)
                         : now_ns;
    place.requests = requests;
    place.priority = priority_(random_);
    place.opcode = reads_(random_) ? tent::Request::READ : tent::Request::WRITE;
    place.checks = false;
    for (uint32_t i = 0; i < requests && plan_.verify && place.opcode == tent::Request::WRITE; ++i) {
        const uint32_t slot = place.first + i;
        messages_[slot] = plan_.depth + counts_.submitted + i;  // differs from everything the slot held before
        fill(local(slot, false), plan_.size, thread_, messages_[slot]);
    }
    submit(place);
    counts_.submitted += requests;
    counts_.under_way += requests;
}

void SprayStream::submit(Place& place) {
    const bool reads = place.opcode == tent::Request::READ;
    if (reads && plan_.verify) std::memset(local(place.first, true), kStale, size_t{plan_.size} * place.requests);
    requests_.resize(place.requests);
    for (uint32_t i = 0; i < place.requests; ++i) {
        requests_[i].opcode = place.opcode;
        requests_[i].source = local(place.first + i, reads);
        requests_[i].target_id = target_;
        requests_[i].target_offset = remote_ + size_t{place.first + i} * plan_.size;
        requests_[i].length = plan_.size;
        requests_[i].priority = place.priority;
    }
    place.batch = engine_.allocateBatch(place.requests);
    if (place.batch == 0) throw Failure("the engine has no room for a batch");
    require(engine_.submitTransfer(place.batch, requests_), "submitTransfer");
}

void SprayStream::look(Place& place, uint64_t now_ns) {
    tent::TransferStatus status;
    require(engine_.getTransferStatus(place.batch, status), "getTransferStatus");
    if (status.s == tent::PENDING) return;
    if (status.s != tent::COMPLETED) {
        counts_.failed += place.requests;
        counts_.under_way -= place.requests;
        throw Failure(std::string(place.opcode == tent::Request::WRITE ? "WRITE" : "READ") + " of " +
                      std::to_string(place.requests) + " x " + std::to_string(plan_.size) +
                      " bytes: " + kStates[status.s]);
    }
    require(engine_.freeBatch(place.batch), "freeBatch");
    place.batch = 0;
    const bool read = place.opcode == tent::Request::READ;
    if (!place.checks) {
        Class& one = counts_.classes[static_cast<size_t>(place.priority)];
        one.latency.record(now_ns > place.begun_ns ? now_ns - place.begun_ns : 0);
        (read ? one.reads : one.writes) += place.requests;
    }
    if (plan_.verify && !read) {
        place.checks = true;
        place.opcode = tent::Request::READ;
        return submit(place);
    }
    if (plan_.verify) verify(place);
    counts_.completed += place.requests;
    counts_.under_way -= place.requests;
}

void SprayStream::verify(const Place& place) {
    for (uint32_t slot = place.first; slot < place.first + place.requests; ++slot)
        counts_.wrong += !is_filled(local(slot, true), plan_.size, thread_, messages_[slot]);
}

}  // namespace rove::testpmd
