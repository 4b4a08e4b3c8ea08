// SPDX-License-Identifier: Apache-2.0
#include "verbs/channel_files.h"

#include <array>
#include <atomic>

namespace rove::verbs::channel_files {

namespace {

// A set of descriptors. All accesses are relaxed, because the thread that made a descriptor synchronises with the
// thread to which it passes it.
class Files {
  public:
    bool contains(int file) const {
        if (static_cast<unsigned>(file) >= static_cast<unsigned>(kMaxFiles)) return false;
        return (word(file).load(std::memory_order_relaxed) & bit(file)) != 0;
    }
    // Returns true if the set has changed.
    bool set(int file, bool value) {
        if (static_cast<unsigned>(file) >= static_cast<unsigned>(kMaxFiles) || contains(file) == value) return false;
        if (value)
            word(file).fetch_or(bit(file), std::memory_order_relaxed);
        else
            word(file).fetch_and(~bit(file), std::memory_order_relaxed);
        return true;
    }

  private:
    static uint64_t bit(int file) { return uint64_t{1} << (file % 64); }
    const std::atomic<uint64_t>& word(int file) const { return words_[static_cast<size_t>(file / 64)]; }
    std::atomic<uint64_t>& word(int file) { return words_[static_cast<size_t>(file / 64)]; }

    std::array<std::atomic<uint64_t>, kMaxFiles / 64> words_{};
};

constinit Files channels, seen_channels, in_epoll_sets, epoll_sets;
constinit std::atomic<bool> epoll_sets_seen{false};
constinit std::atomic<uint32_t> count{0}, event_count{0};

}  // namespace

void opened(int file) {
    if (channels.set(file, true)) count.fetch_add(1, std::memory_order_relaxed);
    seen_channels.set(file, false);
    in_epoll_sets.set(file, false);
}

void closed(int file) {
    if (channels.set(file, false)) count.fetch_sub(1, std::memory_order_relaxed);
}

bool exist() {
    return count.load(std::memory_order_relaxed) != 0;
}

bool is_channel(int file) {
    return channels.contains(file);
}

bool is_epoll_set(int set) {
    return epoll_sets.contains(set);
}

void add_to_epoll_set(int set, int file) {
    epoll_sets.set(set, true);
    in_epoll_sets.set(file, true);
}

void seen(int file) {
    seen_channels.set(file, true);
}

void epoll_set_seen() {
    if (!epoll_sets_seen.load(std::memory_order_relaxed)) epoll_sets_seen.store(true, std::memory_order_relaxed);
}

void not_seen(int file) {
    seen_channels.set(file, false);
    if (in_epoll_sets.contains(file)) epoll_sets_seen.store(false, std::memory_order_relaxed);
}

bool is_seen(int file) {
    return seen_channels.contains(file) ||
           (epoll_sets_seen.load(std::memory_order_relaxed) && in_epoll_sets.contains(file));
}

void count_event() {
    event_count.fetch_add(1, std::memory_order_relaxed);
}

uint32_t events() {
    return event_count.load(std::memory_order_relaxed);
}

}  // namespace rove::verbs::channel_files
