// SPDX-License-Identifier: Apache-2.0
// Draws the actions of a world's programs from its seed.
#include <algorithm>

#include "world.h"

namespace rove::test {

namespace {
constexpr size_t kEnoughBytes = 400'000;  // limit of an arena, for which no further requests are planned
}  // namespace

size_t Arena::allocate(size_t bytes, Random& random, size_t align) {
    const size_t offset = (memory.size() + random.below(9) + align - 1) / align * align;
    memory.resize(offset + bytes + random.between(1, 8), kUntouched);
    shadow.resize(memory.size(), kUntouched);
    return offset;
}

void Arena::set(size_t offset, const std::vector<uint8_t>& data) {
    std::copy(data.begin(), data.end(), memory.begin() + static_cast<ptrdiff_t>(offset));
    std::copy(data.begin(), data.end(), shadow.begin() + static_cast<ptrdiff_t>(offset));
}

World::World(uint64_t seed, bool multipath) : seed_(seed), multipath_(multipath), random_(seed) {
    draw_network();
    for (uint32_t i = 0; i < 2; ++i) {
        arenas_[i].host = &net_->host(i);
        counters_[i] = arenas_[i].allocate(8, random_, 8);
        arenas_[i].set(counters_[i], std::vector<uint8_t>(8, 0));
    }
    draw_queue_pairs();
    for (Direction& d : directions_) plan(d);
    plan_receives();
    for (Arena& arena : arenas_) {
        arena.memory.shrink_to_fit();
        arena.region.host = arena.memory.data();
        // The iova differs from the address, as with ibv_reg_mr_iova; both are aligned alike.
        arena.region.iova = reinterpret_cast<uint64_t>(arena.memory.data()) + (random_.below(1000) << 20);
        arena.region.length = arena.memory.size();
        arena.region.access = kAllAccess | transport::kAccessFlushGlobal |
                              (relaxed_[arena.host->index()] ? IBV_ACCESS_RELAXED_ORDERING : 0);
        arena.region.pd = arena.host;
        arena.host->memory.insert(arena.region);
    }
    for (Direction& d : directions_) {
        if (d.narrow.length == 0) continue;
        d.narrow.iova = d.from->region.iova;
        d.narrow.host = d.from->region.host;
        d.narrow.access = d.from->region.access;
        d.narrow.pd = d.from->region.pd;
        d.from->host->memory.insert(d.narrow);
    }
}

World::~World() {
    for (Direction& d : directions_) {
        d.from->host->destroy(*d.qp);
        if (d.narrow.length != 0) d.from->host->memory.remove(d.narrow);
    }
    for (Arena& arena : arenas_) arena.host->memory.remove(arena.region);
}

std::vector<uint8_t> World::draw_data(size_t bytes) {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = random_.next();
        std::memcpy(data.data() + i, &word, std::min<size_t>(8, bytes - i));
    }
    for (uint8_t& byte : data) byte = byte == kUntouched ? 0x11 : byte;
    return data;
}

std::vector<Range> World::draw_pieces(Arena& arena, uint32_t bytes, uint32_t most) {
    std::vector<Range> pieces;
    const uint64_t count = random_.chance(0.5) ? 1 : random_.between(1, most);
    for (uint64_t i = 1; i <= count; ++i) {
        uint32_t part = i == count ? bytes : static_cast<uint32_t>(random_.below(bytes + 1));
        if (i != count && random_.chance(0.2)) part = 0;
        pieces.push_back({arena.allocate(part, random_), part});
        bytes -= part;
    }
    return pieces;
}

uint32_t World::draw_bytes(const Direction& d) {
    const uint32_t mtu = d.options.mtu;
    if (d.type == IBV_QPT_UD) return static_cast<uint32_t>(random_.between(8, mtu));
    uint64_t bytes;
    switch (random_.below(6)) {
        case 0:
            bytes = random_.below(9);
            break;
        case 1:
            bytes = random_.below(300);
            break;
        case 2:
            bytes = mtu * random_.between(1, 3) + random_.below(3) - 1;
            break;
        case 3:
            bytes = random_.below(mtu * 4ull);
            break;
        case 4:
            bytes = random_.below(8000);
            break;
        default:
            bytes = random_.chance(0.1) ? random_.below(60'000) : random_.below(20'000);
            break;
    }
    if (d.type == IBV_QPT_UC) bytes = std::max<uint64_t>(bytes, 8);
    if (d.pool->qp == nullptr) bytes %= 3000;  // an SRQ's receives are all as long as the longest message
    return static_cast<uint32_t>(bytes);
}

void World::plan(Direction& d) {
    if (d.type == IBV_QPT_XRC_RECV) return;
    if (d.is_rc() && d.reliable) {
        d.hot = d.to->allocate(kHotBytes, random_, 8);
        d.hot_model = draw_data(kHotBytes);
        d.to->set(d.hot, d.hot_model);
    }
    const uint64_t count = random_.chance(0.1) ? 0 : random_.between(1, 40);
    // Requests that resemble the one before, as in a program's lists.
    const double alike = random_.chance(0.3) ? 0.7 : 0;
    bool read_since_fence = false;
    for (size_t i = 0; i < count; ++i) {
        if (d.to->memory.size() > kEnoughBytes) break;
        PlannedSend send;
        const PlannedSend* like = !d.sends.empty() && random_.chance(alike) ? &d.sends.back() : nullptr;
        if (random_.chance(0.15)) send.flags |= IBV_SEND_FENCE;
        if (random_.chance(0.1)) send.flags |= IBV_SEND_SOLICITED;
        if (random_.chance(0.1)) send.flags |= ROVE_SEND_SYNC;
        if (like != nullptr) send.flags = like->flags & ~static_cast<uint32_t>(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        if (random_.chance(0.6)) send.flags |= IBV_SEND_SIGNALED;
        send.immediate = static_cast<uint32_t>(random_.next());
        if (d.is_rc()) {
            plan_rc(d, send, like);
        } else {
            plan_datagram(d, send, i);
        }
        // Data of an unfenced READ may be read late, so it must not be overwritten before.
        if (!send.fresh && send.puts_data() && read_since_fence) send.flags |= IBV_SEND_FENCE;
        if ((send.flags & IBV_SEND_FENCE) != 0) read_since_fence = false;
        if (!send.fresh && send.is_read()) read_since_fence = true;
        // The last one is signaled, so that its end is seen. A full queue of unsignaled requests would be the program's
        // mistake.
        if (i + 1 == count || i % d.options.depth == d.options.depth - 1) send.flags |= IBV_SEND_SIGNALED;
        if (d.options.sq_sig_all) send.flags |= IBV_SEND_SIGNALED;
        const bool carries = !send.is_read() && !send.is_atomic() && send.length == 0;
        if (carries && send.data.size() <= d.options.max_inline && random_.chance(0.3)) send.flags |= IBV_SEND_INLINE;
        d.sends.push_back(std::move(send));
    }
    if (d.doomed) plan_failure_at_home(d);
    if (!reliable_ && d.type == IBV_QPT_RC && random_.chance(0.4) && !d.sends.empty()) plan_poison(d);
    if (!d.sends.empty()) d.sends.back().flags |= IBV_SEND_SIGNALED;
    for (size_t i = 0; i < d.sends.size(); ++i) {
        if (d.sends[i].is_message() && (!d.sends[i].poison || d.sends[i].fails_at_home())) d.messages.push_back(i);
    }
    d.message_seen.assign(d.sends.size(), false);
}

void World::plan_rc(Direction& d, PlannedSend& send, const PlannedSend* like) {
    const uint64_t what = random_.below(100);
    send.opcode = what < 25   ? IBV_WR_SEND
                  : what < 35 ? IBV_WR_SEND_WITH_IMM
                  : what < 60 ? IBV_WR_RDMA_WRITE
                  : what < 70 ? IBV_WR_RDMA_WRITE_WITH_IMM
                  : what < 80 ? IBV_WR_RDMA_READ
                  : what < 86 ? IBV_WR_ATOMIC_FETCH_AND_ADD
                  : what < 90 ? IBV_WR_ATOMIC_CMP_AND_SWP
                  : what < 95 ? PlannedSend::kAtomicWrite
                              : PlannedSend::kFlush;
    if (like != nullptr) send.opcode = like->opcode;
    if (send.is_flush()) return plan_flush(d, send);
    if (send.is_atomic_write()) return plan_atomic_write(d, send);
    if (send.is_atomic()) {
        send.local = draw_pieces(*d.from, 8, 3);
        if (d.reliable && send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && random_.chance(0.5)) {
            send.shared_counter = true;
            send.fresh = false;
            send.remote = counters_[d.to->host->index()];
            send.compare_add = random_.between(1, 1000);
            d.counter_added += send.compare_add;
            return;
        }
        // Each has a word of its own, so that its answer and effect are known.
        send.remote = d.to->allocate(8, random_, 8);
        send.data = draw_data(8);
        d.to->set(send.remote, send.data);
        uint64_t original;
        std::memcpy(&original, send.data.data(), 8);
        send.swap = random_.next();
        send.compare_add = send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? random_.next()
                           : random_.chance(0.5)                      ? original
                                                                      : original + 1;
        return;
    }
    const uint32_t bytes = like != nullptr ? like->bytes() : draw_bytes(d);
    send.local = draw_pieces(*d.from, bytes, like != nullptr ? 1 : 5);
    const bool hot = d.reliable && !send.is_send() && bytes != 0 && bytes < kHotBytes / 2 && random_.chance(0.3);
    if (hot) {
        send.fresh = false;
        const size_t at = random_.below(kHotBytes - bytes);
        send.remote = d.hot + at;
        if (send.is_read()) {
            send.data.assign(d.hot_model.begin() + static_cast<ptrdiff_t>(at),
                             d.hot_model.begin() + static_cast<ptrdiff_t>(at + bytes));
            return;
        }
        if (d.promise != Promise::kInOrder) send.flags |= ROVE_SEND_SYNC;
        send.data = draw_data(bytes);
        std::copy(send.data.begin(), send.data.end(), d.hot_model.begin() + static_cast<ptrdiff_t>(at));
    } else {
        send.data = draw_data(bytes);
        if (!send.is_send()) send.remote = d.to->allocate(bytes, random_);
        if (send.is_read()) {
            d.to->set(send.remote, send.data);
            return;
        }
    }
    fill_source(d, send);
}

// Plans a FLUSH of a range, empty or up to all of the arena, or of the whole region.
void World::plan_flush(Direction& d, PlannedSend& send) {
    send.remote = random_.below(d.to->memory.size() + 1);
    send.length = static_cast<uint32_t>(random_.below(d.to->memory.size() - send.remote + 1));
    const bool whole = random_.chance(0.3);
    send.immediate = transport::kFlushGlobal | uint32_t{whole ? transport::kFlushRegion : transport::kFlushRange} << 4;
}

void World::plan_atomic_write(Direction& d, PlannedSend& send) {
    constexpr size_t kBytes = transport::kAtomicWriteBytes;
    send.data = draw_data(kBytes);
    if (d.reliable && random_.chance(0.3)) {
        const size_t at = random_.below(kHotBytes / kBytes) * kBytes;
        send.fresh = false;
        send.remote = d.hot + at;
        std::ranges::copy(send.data, d.hot_model.begin() + static_cast<ptrdiff_t>(at));
    } else {
        send.remote = d.to->allocate(kBytes, random_, kBytes);
    }
    if (random_.chance(0.5)) {
        std::memcpy(&send.compare_add, send.data.data(), kBytes);
        send.length = kBytes;
        return;
    }
    send.local = draw_pieces(*d.from, kBytes, 3);
    fill_source(d, send);
}

// Writes the data to the source of a request.
void World::fill_source(Direction& d, const PlannedSend& send) {
    size_t done = 0;
    for (const Range& piece : send.local) {
        const auto begin = send.data.begin() + static_cast<ptrdiff_t>(done);
        d.from->set(piece.offset, std::vector<uint8_t>(begin, begin + piece.bytes));
        done += piece.bytes;
    }
}

// Plans messages of UC and UD.
void World::plan_datagram(Direction& d, PlannedSend& send, size_t index) {
    const uint64_t what = random_.below(d.type == IBV_QPT_UC ? 4 : 2);
    send.opcode = what == 0   ? IBV_WR_SEND
                  : what == 1 ? IBV_WR_SEND_WITH_IMM
                  : what == 2 ? IBV_WR_RDMA_WRITE
                              : IBV_WR_RDMA_WRITE_WITH_IMM;
    const uint32_t bytes = draw_bytes(d);
    send.data = draw_data(bytes);
    const uint64_t id = 0x1111111100000000ull | index;
    std::memcpy(send.data.data(), &id, 8);
    send.immediate = static_cast<uint32_t>(index);
    send.local = draw_pieces(*d.from, bytes, 5);
    if (send.is_write()) send.remote = d.to->allocate(bytes, random_);
    fill_source(d, send);
}

// Turns one of the requests into one whose local memory is missing, all or in part.
void World::plan_failure_at_home(Direction& d) {
    const size_t first = random_.below(d.sends.size() + 1);
    const auto found = std::find_if(d.sends.begin() + static_cast<ptrdiff_t>(first), d.sends.end(),
                                    [](const PlannedSend& send) { return send.bytes() != 0; });
    d.doomed = found != d.sends.end();
    if (!d.doomed) return;
    PlannedSend& send = *found;
    send.flags &= ~static_cast<uint32_t>(IBV_SEND_INLINE);
    send.poison = IBV_WC_LOC_PROT_ERR;
    uint32_t usable = 0;
    if (send.local.size() == 1 && random_.chance(0.7)) {
        usable = static_cast<uint32_t>(random_.below(send.bytes()));
        send.narrow = true;
        d.narrow.length = send.local[0].offset + usable;
    } else {
        send.bad_lkey = true;
    }
    if (!send.is_atomic()) send.data.resize(usable / d.options.mtu * d.options.mtu);
}

// Turns a request, most often the last one, into one that must fail.
void World::plan_poison(Direction& d) {
    if (random_.chance(0.2)) {
        plan_failure_at_home(d);
        return;
    }
    PlannedSend& send = d.sends.back();
    send = {};
    send.flags = IBV_SEND_SIGNALED;
    send.local = {{d.from->allocate(1000, random_), 1000}};
    send.remote = d.to->allocate(1000, random_, 8);
    switch (random_.below(7)) {
        case 0:
            send.opcode = IBV_WR_RDMA_WRITE;
            send.poison = IBV_WC_REM_ACCESS_ERR;
            send.bad_rkey = true;
            break;
        case 1:
            send.opcode = IBV_WR_RDMA_READ;
            send.poison = IBV_WC_REM_ACCESS_ERR;
            send.beyond_end = true;
            break;
        case 2:
            send.opcode = IBV_WR_SEND;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            send.too_long = true;
            break;
        case 3:
            send.opcode = PlannedSend::kAtomicWrite;
            send.local[0].bytes = 8;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            send.remote += 4;
            break;
        case 4:
            send.opcode = PlannedSend::kFlush;
            send.local.clear();
            send.length = 1000;
            send.immediate = transport::kFlushGlobal;
            send.poison = IBV_WC_REM_ACCESS_ERR;
            send.beyond_end = true;
            break;
        case 5:
            send.opcode = PlannedSend::kFlush;
            send.local.clear();
            send.immediate = transport::kFlushPersistent;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            break;
        default:
            send.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
            send.local[0].bytes = 8;
            send.poison = IBV_WC_REM_INV_REQ_ERR;
            send.remote += 4;
            break;
    }
}

// Plans as many receives as messages. In a QP's own queue each fits its message, in an SRQ any fits any.
void World::plan_receives() {
    for (ReceivePool& pool : pools_) {
        uint32_t most = 0;
        std::vector<uint32_t> sizes;
        bool grh = false;
        for (Direction& d : directions_) {
            if (d.pool != &pool) continue;
            grh = d.type == IBV_QPT_UD;
            for (size_t i : d.messages) {
                sizes.push_back(d.sends[i].is_send() ? d.sends[i].bytes() : 0);
                most = std::max(most, sizes.back());
            }
            if (!d.sends.empty() && d.sends.back().too_long) sizes.push_back(d.sends.back().local[0].bytes / 2);
        }
        const bool any_fits_any = pool.qp == nullptr || pool.qp->type != IBV_QPT_RC;
        for (uint32_t bytes : sizes) {
            if (any_fits_any) bytes = most;
            if (random_.chance(0.3)) bytes += static_cast<uint32_t>(random_.below(50));
            if (grh) bytes += 40;
            PlannedReceive receive;
            receive.bytes = bytes;
            receive.pieces = draw_pieces(*pool.arena, bytes, 5);
            pool.receives.push_back(std::move(receive));
        }
    }
}

}  // namespace rove::test
