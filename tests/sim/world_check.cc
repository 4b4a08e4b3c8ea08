// SPDX-License-Identifier: Apache-2.0
// The guarantees of verbs, checked: completions as they come, memory with them and at the end.
#include <algorithm>

#include "world.h"

namespace rove::test {

namespace {

ibv_wc_opcode completed_opcode(ibv_wr_opcode opcode) {
    switch (static_cast<int>(opcode)) {  // the header's enumeration may lack FLUSH and ATOMIC WRITE
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return IBV_WC_RDMA_WRITE;
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        case PlannedSend::kAtomicWrite:
            return transport::kWcAtomicWrite;
        case PlannedSend::kFlush:
            return transport::kWcFlush;
        default:
            return IBV_WC_SEND;
    }
}

uint64_t word(const std::vector<uint8_t>& data) {
    uint64_t value;
    std::memcpy(&value, data.data(), 8);
    return value;
}

std::vector<uint8_t> bytes_of(uint64_t value) {
    std::vector<uint8_t> bytes(8);
    std::memcpy(bytes.data(), &value, 8);
    return bytes;
}

std::vector<uint8_t> gathered(const Arena& arena, const std::vector<Range>& pieces, size_t bytes) {
    std::vector<uint8_t> all;
    for (const Range& piece : pieces) {
        const auto begin = arena.memory.begin() + static_cast<ptrdiff_t>(piece.offset);
        all.insert(all.end(), begin, begin + piece.bytes);
    }
    all.resize(std::min(all.size(), bytes));
    return all;
}

void scatter_to_shadow(Arena& arena, const std::vector<Range>& pieces, const std::vector<uint8_t>& data) {
    size_t done = 0;
    for (const Range& piece : pieces) {
        const size_t part = std::min<size_t>(piece.bytes, data.size() - done);
        std::copy_n(data.begin() + static_cast<ptrdiff_t>(done), part,
                    arena.shadow.begin() + static_cast<ptrdiff_t>(piece.offset));
        done += part;
    }
}

uint64_t atomic_result(const PlannedSend& send) {
    const uint64_t original = word(send.data);
    if (send.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return original + send.compare_add;
    return original == send.compare_add ? send.swap : original;
}

}  // namespace

void World::on_send(Direction& d, const ibv_wc& wc) {
    const size_t index = wc.wr_id;
    SCOPED_TRACE("direction " + std::to_string(d.index) + ", QP " + std::to_string(d.qp->qpn) + ", at " +
                 std::to_string(net_->now()) + " ns");
    ASSERT_LT(index, d.posted);
    ASSERT_GE(index, d.ended) << "completed twice or out of order";
    const PlannedSend& send = d.sends[index];
    if (d.send_failed) {
        EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR) << "after an error everything is flushed";
        EXPECT_EQ(index, d.ended) << "every request is flushed, in order";
        d.ended = index + 1;
        return;
    }
    for (size_t i = d.ended; i < index; ++i) {
        EXPECT_FALSE(d.sends[i].signaled()) << "completion of request " << i << " is missing";
        EXPECT_FALSE(d.sends[i].poison.has_value());
        check_completed(d, i);
    }
    d.succeeded = index;
    d.ended = index + 1;
    if (wc.status != IBV_WC_SUCCESS) {
        d.send_failed = true;
        check_failure(d, index, wc.status);
        return;
    }
    EXPECT_FALSE(send.poison.has_value()) << "request " << index << " should have failed";
    EXPECT_TRUE(send.signaled()) << "request " << index << " was not signaled";
    EXPECT_EQ(wc.opcode, completed_opcode(send.opcode));
    if (send.is_read()) {
        EXPECT_EQ(wc.byte_len, send.data.size());
    }
    if (send.is_atomic()) {
        EXPECT_EQ(wc.byte_len, 8u);
    }
    check_completed(d, index);
    d.succeeded = index + 1;
}

// Checks the first request of a queue pair that did not succeed.
void World::check_failure(const Direction& d, size_t index, ibv_wc_status status) {
    const PlannedSend& send = d.sends[index];
    EXPECT_FALSE(d.reliable) << "request " << index << " failed with status " << status;
    EXPECT_EQ(d.qp->state, IBV_QPS_ERR);
    if (send.poison == status) return;
    // In a reliable world the peer answers until it has failed itself, and never lacks receives for ever.
    const bool unanswered = !reliable_ || (!d.doomed && d.peer->state == IBV_QPS_ERR);
    const bool exhausted = status == IBV_WC_RETRY_EXC_ERR || (!reliable_ && status == IBV_WC_RNR_RETRY_EXC_ERR);
    const bool never_sent = send.bad_lkey && send.stops_sending();
    EXPECT_TRUE(unanswered && (status == IBV_WC_WR_FLUSH_ERR || (exhausted && !never_sent)))
        << "request " << index << ": status " << status;
}

// Checks a request that has succeeded.
void World::check_completed(Direction& d, size_t index) {
    check_response(d, d.sends[index]);
    if (d.sends[index].is_flush()) check_writes_before(d, index);
}

// Checks that the data of a successful READ or atomic is in place.
void World::check_response(Direction& d, const PlannedSend& send) {
    if (!send.is_read() && !send.is_atomic()) return;
    const std::vector<uint8_t> got = gathered(*d.from, send.local, SIZE_MAX);
    if (send.shared_counter) {
        fetched_[d.to->host->index()].push_back(word(got));
    } else {
        EXPECT_TRUE(got == send.data) << "direction " << d.index << ": wrong data in response to request "
                                      << &send - &d.sends[0];
    }
    scatter_to_shadow(*d.from, send.local, got);
}

void World::on_receive(Direction& d, const ibv_wc& wc) {
    const size_t index = wc.wr_id & ~kIsReceive;
    ASSERT_LT(index, d.pool->receives.size());
    PlannedReceive& receive = d.pool->receives[index];
    ASSERT_TRUE(receive.posted && !receive.done) << "receive " << index << " completed twice";
    receive.done = true;
    if (d.pool->qp != nullptr) {
        EXPECT_EQ(index, d.receives_ended) << "receives complete in order";
    }
    ++d.receives_ended;
    if (wc.status != IBV_WC_SUCCESS) {
        EXPECT_FALSE(d.reliable) << "receive " << index << " failed with status " << wc.status;
        if (wc.status != IBV_WC_WR_FLUSH_ERR) {
            EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
            EXPECT_TRUE(!d.receive_failed && d.sends.back().too_long && d.delivered == d.messages.size());
        }
        d.receive_failed = true;
        return;
    }
    EXPECT_FALSE(d.receive_failed) << "delivered after an error";
    if (!d.is_rc()) {
        on_datagram(d, wc, receive);
        return;
    }
    ASSERT_LT(d.delivered, d.messages.size()) << "a message was delivered twice";
    const size_t message = d.messages[d.delivered++];
    const PlannedSend& send = d.sends[message];
    ASSERT_LT(message, d.posted);
    EXPECT_FALSE(send.poison.has_value()) << "message " << message << " could not be sent";
    EXPECT_EQ(wc.opcode, send.is_send() ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.byte_len, send.data.size());
    const bool immediate = send.opcode != IBV_WR_SEND;
    EXPECT_EQ(wc.wc_flags, immediate ? static_cast<unsigned>(IBV_WC_WITH_IMM) : 0u);
    if (immediate) {
        EXPECT_EQ(ntohl(wc.imm_data), send.immediate);
    }
    if (send.is_send()) {
        EXPECT_TRUE(gathered(*d.to, receive.pieces, send.data.size()) == send.data)
            << "message " << message << " has wrong data";
        scatter_to_shadow(*d.to, receive.pieces, send.data);
    }
    check_writes_before(d, message + 1);
}

// Checks that the WRITEs before a delivered message or a completed FLUSH are done.
void World::check_writes_before(Direction& d, size_t end) {
    for (; d.writes_checked < end; ++d.writes_checked) {
        const PlannedSend& send = d.sends[d.writes_checked];
        if (!send.puts_data() || !send.fresh || send.poison) continue;
        EXPECT_TRUE(d.to->holds(send.remote, send.data)) << "WRITE " << d.writes_checked << " is not there";
    }
}

void World::on_datagram(Direction& d, const ibv_wc& wc, PlannedReceive& receive) {
    const uint32_t grh = d.type == IBV_QPT_UD ? 40 : 0;
    const bool write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
    uint64_t id = ntohl(wc.imm_data);
    std::vector<uint8_t> got;
    if (!write) {
        got = gathered(*d.to, receive.pieces, wc.byte_len);
        ASSERT_GE(got.size(), grh + 8);
        got.erase(got.begin(), got.begin() + grh);
        id = word(got) & 0xFFFFFFFF;
    }
    ASSERT_LT(id, d.posted) << "a message that nobody sent";
    const PlannedSend& send = d.sends[id];
    ASSERT_TRUE(send.is_message());
    EXPECT_EQ(wc.opcode, send.is_send() ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.byte_len, send.data.size() + grh);
    EXPECT_TRUE(write ? d.to->holds(send.remote, send.data) : got == send.data)
        << "message " << id << " has wrong data";
    if (send.opcode != IBV_WR_SEND) {
        EXPECT_EQ(ntohl(wc.imm_data), send.immediate);
    }
    EXPECT_EQ((wc.wc_flags & IBV_WC_GRH) != 0, grh != 0);
    if (grh != 0) {
        EXPECT_EQ(wc.src_qp, d.qp->qpn);
    }
    if (in_order_) {
        EXPECT_FALSE(d.message_seen[id]) << "message " << id << " twice on a network that repeats nothing";
        for (size_t later = id + 1; later < d.sends.size(); ++later) {
            EXPECT_FALSE(d.message_seen[later]) << "out of order on a network that keeps order";
        }
    }
    d.message_seen[id] = true;
    ++d.delivered;
}

// Returns the packets of a message that are in memory. The rest must be untouched, except for one damaged packet: a
// payload is verified while it is copied, and the data of a message that did not end is not guaranteed.
Applied World::applied(const Direction& d, const Arena& arena, const std::vector<Range>& pieces,
                       const std::vector<uint8_t>& data) const {
    const std::vector<uint8_t> got = gathered(arena, pieces, data.size());
    Applied found{.any = false, .all = true, .end = false};
    int damaged = net_->egress[0].corrupt + net_->egress[1].corrupt > 0 ? 1 : 0;
    for (size_t at = 0; at < data.size(); at += d.options.mtu) {
        const size_t end = std::min(data.size(), at + d.options.mtu);
        found.end = std::equal(&data[at], &data[end - 1] + 1, &got[at]);
        found.any |= found.end;
        if (!found.end) {
            const bool untouched = std::all_of(&got[at], &got[end - 1] + 1, [](uint8_t b) { return b == kUntouched; });
            EXPECT_TRUE(untouched || damaged-- > 0) << "neither old nor new";
        } else if (!multipath_) {
            EXPECT_TRUE(found.all) << "not from the beginning";
        }
        found.all &= found.end;
    }
    return found;
}

// Checks that the word of an ATOMIC WRITE is not there in part, not even from a damaged packet.
void World::check_whole(const Direction& d, const PlannedSend& send) const {
    const std::vector<uint8_t> untouched(send.data.size(), kUntouched);
    EXPECT_TRUE(d.to->holds(send.remote, send.data) || d.to->holds(send.remote, untouched)) << "part of a word";
}

// Does the same as applied() at the end, and updates the shadow.
Applied World::settle(const Direction& d, Arena& arena, const std::vector<Range>& pieces,
                      const std::vector<uint8_t>& data) const {
    const Applied found = applied(d, arena, pieces, data);
    scatter_to_shadow(arena, pieces, gathered(arena, pieces, data.size()));
    return found;
}

// EU-7, MP-12: checks the visible part of a message, given whether everything posted before it is visible.
void World::check_order(const Direction& d, const PlannedSend& send, const Applied& applied, bool all_before) {
    const bool in_order = d.promise == Promise::kInOrder || !send.is_write();
    if (in_order || send.is_sync()) {
        EXPECT_TRUE(all_before || !applied.any) << "took effect although an earlier request did not";
    }
    if (in_order || d.promise == Promise::kLastInOrder || send.is_message()) {
        EXPECT_TRUE((all_before && applied.all) || !applied.end) << "its last packet came before what is before it";
    }
}

// Checks the conclusions that a program may draw from polling memory.
void World::check_visible(Direction& d) {
    bool all_before = true;
    size_t message = 0;
    for (size_t i = 0; i < d.posted; ++i) {
        PlannedSend& send = d.sends[i];
        if (send.poison) return;
        if (send.is_message() && message++ >= d.delivered && send.is_send()) all_before = false;
        if (!send.puts_data() || !send.fresh || send.placed) continue;
        SCOPED_TRACE("direction " + std::to_string(d.index) + " request " + std::to_string(i));
        if (send.is_atomic_write()) check_whole(d, send);
        const Applied found = applied(d, *d.to, {{send.remote, static_cast<uint32_t>(send.data.size())}}, send.data);
        check_order(d, send, found, all_before);
        send.placed = found.all;
        all_before &= found.all;
    }
}

// Design note 3: all requests up to some point have taken effect, and beyond it those that the ordering allows.
void World::settle_rc(Direction& d) {
    if (!d.broken()) {
        EXPECT_EQ(d.succeeded, d.sends.size());
    }
    bool stopped = false, never_begun = false;
    size_t message = 0;
    for (size_t i = 0; i < d.sends.size(); ++i) {
        const PlannedSend& send = d.sends[i];
        const bool must = i < d.succeeded;
        SCOPED_TRACE("direction " + std::to_string(d.index) + " request " + std::to_string(i));
        const bool delivered = !send.is_message() || message++ < d.delivered;
        // A requester that is slowed down asks for a READ in pieces, and those within the region may have arrived.
        if (send.beyond_end) scatter_to_shadow(*d.from, send.local, gathered(*d.from, send.local, kWithin));
        if ((send.poison && !send.fails_at_home()) || send.shared_counter || !send.fresh || send.is_flush()) continue;
        Applied found{.any = true, .all = true, .end = true};
        if (send.is_send()) {
            if (!delivered && d.pool->qp != nullptr)
                found = settle(d, *d.to, d.pool->receives[message - 1].pieces, send.data);
        } else if (send.puts_data()) {
            if (send.is_atomic_write()) check_whole(d, send);
            found = settle(d, *d.to, {{send.remote, static_cast<uint32_t>(send.data.size())}}, send.data);
        } else {
            if (!must && !(send.is_atomic() && send.fails_at_home())) {
                const Applied brought = settle(d, *d.from, send.local, send.data);
                EXPECT_FALSE(never_begun && brought.any) << "behind one that failed at home";
            }
            if (send.is_read()) continue;
            const uint64_t result = atomic_result(send);
            const std::vector<Range> target = {{send.remote, 8}};
            const uint64_t value = word(gathered(*d.to, target, 8));
            const bool executed = value == result && result != word(send.data);
            EXPECT_TRUE(executed || value == word(send.data)) << "the word holds neither the old nor the new value";
            scatter_to_shadow(*d.to, target, bytes_of(value));
            if (result == word(send.data)) continue;
            found = {.any = executed, .all = executed, .end = executed};
        }
        found.all &= delivered;
        if (must) {
            EXPECT_TRUE(found.all) << "completed and not done";
        }
        if (send.stops_sending()) found.all = found.end = false;
        EXPECT_FALSE(never_begun && (found.any || (send.is_message() && delivered)))
            << "behind one that failed at home";
        check_order(d, send, found, !stopped);
        stopped |= !found.all;
        never_begun |= send.stops_sending();
    }
    if (d.reliable) {
        std::copy(d.hot_model.begin(), d.hot_model.end(), d.to->shadow.begin() + static_cast<ptrdiff_t>(d.hot));
    }
}

void World::settle_unreliable(Direction& d) {
    EXPECT_EQ(d.succeeded, d.sends.size());
    EXPECT_FALSE(d.broken());
    for (size_t i = 0; i < d.sends.size(); ++i) {
        const PlannedSend& send = d.sends[i];
        if (!send.is_write()) continue;
        const std::vector<Range> target = {{send.remote, static_cast<uint32_t>(send.data.size())}};
        const std::vector<uint8_t> got = gathered(*d.to, target, SIZE_MAX);
        for (size_t at = 0; at < got.size(); ++at) {
            ASSERT_TRUE(got[at] == send.data[at] || got[at] == kUntouched) << "neither old nor new";
        }
        if (clean_ && send.opcode == IBV_WR_RDMA_WRITE) {
            EXPECT_TRUE(got == send.data) << "UC WRITE lost by nobody";
        }
        scatter_to_shadow(*d.to, target, got);
    }
    // A receive may hold the beginning of a message that was dropped. Its other bytes were checked when it completed.
    for (const PlannedReceive& receive : d.pool->receives) {
        scatter_to_shadow(*d.to, receive.pieces, gathered(*d.to, receive.pieces, SIZE_MAX));
    }
}

// Checks that each pause was drained once, except one in which a queue pair broke, and that correct requests raise no
// error event.
void World::settle_events(const Direction& d) {
    const int drained = d.from->host->sink.count(IBV_EVENT_SQ_DRAINED, d.qp);
    EXPECT_TRUE(drained == d.drains || (d.broken() && drained + 1 == d.drains)) << drained << " of " << d.drains;
    if (!d.sends.empty() && d.sends.back().poison && !d.sends.back().fails_at_home()) return;
    for (const ibv_event_type event : {IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR}) {
        EXPECT_EQ(d.to->host->sink.count(event, d.peer), 0) << "direction " << d.index;
    }
}

// Checks that the receivers returned the memory of early packets (EU-3, EU-7).
void World::settle_memory() {
    for (const bool gone : {false, true}) {
        for (Direction& d : directions_) {
            if (gone || d.broken() || directions_[d.index ^ 1].broken()) d.from->host->destroy(*d.qp);
        }
        for (uint32_t host = 0; host < 2; ++host) {
            const transport::MultipathShared* shared = net_->host(host).engine.multipath();
            if (shared == nullptr) continue;
            const bool kept = configs_[host].reorder.kind == transport::ReorderConfig::Kind::kStatic;
            EXPECT_TRUE(shared->early_count() == 0 || (kept && !gone)) << shared->early_count();
            EXPECT_TRUE(shared->reorder.usage().blocks == 0 || (kept && !gone)) << shared->reorder.usage().blocks;
        }
    }
}

// Checks that every addition happened once: the sum is right, and each found a value that no other found.
void World::settle_counters() {
    for (uint32_t host = 0; host < 2; ++host) {
        uint64_t sum = 0;
        for (const Direction& d : directions_) {
            if (d.to->host->index() == host) sum += d.counter_added;
        }
        const std::vector<uint8_t> expected = bytes_of(sum);
        std::copy(expected.begin(), expected.end(),
                  arenas_[host].shadow.begin() + static_cast<ptrdiff_t>(counters_[host]));
        std::vector<uint64_t>& found = fetched_[host];
        std::sort(found.begin(), found.end());
        EXPECT_TRUE(std::adjacent_find(found.begin(), found.end()) == found.end())
            << "two additions found the same value";
        EXPECT_TRUE(found.empty() || found.back() < sum);
    }
}

}  // namespace rove::test
