// SPDX-License-Identifier: Apache-2.0
// Implements stream.h. With the consistency check, each place writes a unique pattern and reads it back before it
// writes the next one.
#include "stream.h"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace rove::tebench {

namespace {

using tent::Request;

constexpr const char* kStates[] = {"INITIAL", "PENDING", "INVALID", "CANCELED", "COMPLETED", "TIMEOUT", "FAILED"};

// Returns a different word for each place and seed, with the increment and first multiplier of SplitMix64.
uint64_t word(uint64_t seed, size_t index) {
    const uint64_t mixed = (seed + index * 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
    return mixed ^ mixed >> 31;
}

void fill(uint8_t* memory, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        const uint64_t value = word(seed, at);
        std::memcpy(memory + at, &value, std::min(sizeof(value), bytes - at));
    }
}

// Fills memory with the content that write_seed writes to `address`.
void fill_seeded(uint8_t* memory, size_t bytes, uint64_t address) {
    constexpr uint64_t kSeed = 0x726F7665;
    for (size_t at = 0, part; at < bytes; at += part) {
        const size_t within = (address + at) % sizeof(uint64_t);
        const uint64_t value = word(kSeed, address + at - within);
        part = std::min(sizeof(value) - within, bytes - at);
        std::memcpy(memory + at, reinterpret_cast<const uint8_t*>(&value) + within, part);
    }
}

}  // namespace

uint64_t now_ns() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

Stream::Stream(tent::TransferEngine& engine, const Work& work)
    : engine_(engine),
      work_(work),
      places_(work.outstanding),
      random_(work.seed),
      next_ns_(now_ns()),
      seeds_(work.seed << 32) {
    for (size_t i = 0; i < places_.size(); ++i) places_[i].index = i;
    requests_.resize(work.batch);
    for (Request& one : requests_) {
        one.target_id = work.target;
        one.length = work.block;
        one.priority = work.priority;
        one.transport_hint = work.hint;
        one.intent_type = work.intent;
    }
}

uint8_t* Stream::returned(const Place& place) const {
    return pattern(place) + (work_.check ? work_.bytes() : 0);
}

uint64_t Stream::arrived() const {
    uint64_t bytes = arrived_;
    for (const Place& place : places_)
        if (place.counted) bytes += place.arrived;
    return bytes;
}

bool Stream::fail(const Place& place, const std::string& why) {
    error_ = std::string(place.opcode == Request::WRITE ? "WRITE" : "READ") + " of " + std::to_string(work_.batch) +
             " x " + std::to_string(work_.block) + " bytes: " + why;
    return false;
}

bool Stream::step(bool submit) {
    for (Place& place : places_) {
        if (place.batch != 0 && !look(place)) return false;
        if (place.batch != 0 || !submit) continue;
        const uint64_t now = now_ns();
        uint64_t begun_ns = now;
        // Transfers that only serve the check belong to no request: they do not wait, and their time does not count.
        const bool for_check =
            work_.check && place.written != (work_.operation == Operation::kRead) && work_.operation != Operation::kMix;
        if (!for_check && work_.rate > 0) {
            if (now < next_ns_) continue;
            begun_ns = next_ns_;
            next_ns_ += static_cast<uint64_t>(std::exponential_distribution<double>(work_.rate)(random_) * 1e9);
        } else if (!for_check && now < place.not_before_ns) {
            continue;
        }
        if (!begin(place, begun_ns)) return false;
    }
    return true;
}

bool Stream::begin(Place& place, uint64_t begun_ns) {
    const bool alternates = work_.check || work_.operation == Operation::kMix;
    if (alternates) {
        place.opcode = place.written ? Request::READ : Request::WRITE;
    } else {
        place.opcode = work_.operation == Operation::kRead ? Request::READ : Request::WRITE;
    }
    place.counted =
        work_.operation == Operation::kMix || (place.opcode == Request::READ) == (work_.operation == Operation::kRead);
    place.recorded = place.counted && recording_;
    uint8_t* memory = place.opcode == Request::READ ? returned(place) : pattern(place);
    if (work_.check && place.opcode == Request::WRITE) fill(memory, work_.batch_bytes(), place.seed = ++seeds_);
    if (work_.check && place.opcode == Request::READ) std::memset(memory, 0, work_.batch_bytes());
    const uint64_t remote = work_.remote + place.index * work_.batch_bytes();
    if (work_.seeded && place.opcode == Request::WRITE) fill_seeded(memory, work_.batch_bytes(), remote);
    for (size_t i = 0; i < requests_.size(); ++i) {
        requests_[i].opcode = place.opcode;
        requests_[i].source = memory + i * work_.block;
        requests_[i].target_offset = remote + i * work_.block;
    }
    // The time to prepare the content for the check does not count as the engine's.
    place.begun_ns = (work_.check || work_.seeded) && work_.rate == 0 ? now_ns() : begun_ns;
    place.deadline_ns = work_.deadline_ns != 0 && place.counted ? now_ns() + work_.deadline_ns : 0;
    for (Request& one : requests_) one.deadline_ns = place.deadline_ns;
    place.arrived = 0;
    place.batch = engine_.allocateBatch(work_.batch);
    if (place.batch == 0) return fail(place, "no batch can be allocated");
    ++running_;
    const tent::Status status =
        work_.notify && place.counted
            ? engine_.submitTransfer(place.batch, requests_, {"tebench", std::to_string(place.index)})
            : engine_.submitTransfer(place.batch, requests_);
    return status.ok() || fail(place, "submitTransfer: " + status.ToString());
}

bool Stream::look(Place& place) {
    tent::TransferStatus status;
    const tent::Status asked = engine_.getTransferStatus(place.batch, status);
    if (!asked.ok()) return fail(place, "getTransferStatus: " + asked.ToString());
    place.arrived = status.transferred_bytes;
    if (status.s == tent::PENDING) return true;
    const uint64_t now = now_ns();
    const double took_ms = static_cast<double>(now - place.begun_ns) / 1e6;
    const bool is_late = status.s == tent::TIMEOUT && place.deadline_ns != 0 && now >= place.deadline_ns;
    if (status.s != tent::COMPLETED && !is_late)
        return fail(place, std::string(kStates[status.s]) + " after " + std::to_string(took_ms) + " ms");
    if (place.recorded && is_late) ++missed_;
    if (place.recorded && !is_late) times_ns_.push_back(now - place.begun_ns);
    if (place.counted) arrived_ += place.arrived;
    place.arrived = 0;
    place.not_before_ns = now + work_.interval_ns;
    --running_;
    const tent::Status freed = engine_.freeBatch(place.batch);
    place.batch = 0;
    if (!freed.ok()) return fail(place, "freeBatch: " + freed.ToString());
    if (is_late) {  // the target's content is unknown now
        place.written = false;
        return true;
    }
    if (work_.seeded && place.opcode == Request::READ) {
        expected_.resize(work_.batch_bytes());
        fill_seeded(expected_.data(), expected_.size(), work_.remote + place.index * work_.batch_bytes());
        if (std::memcmp(expected_.data(), returned(place), expected_.size()) != 0)
            return fail(place, "the data read back differs from the data that write_seed writes");
    }
    if (work_.check && place.opcode == Request::READ &&
        std::memcmp(pattern(place), returned(place), work_.batch_bytes()) != 0)
        return fail(place, "the data read back differs from the data written");
    // A stream of READs keeps the pattern.
    place.written = place.opcode == Request::WRITE || work_.operation == Operation::kRead;
    return true;
}

}  // namespace rove::tebench
