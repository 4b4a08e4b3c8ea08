// SPDX-License-Identifier: Apache-2.0
#include "traffic.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "latency.h"

namespace rove::testpmd {

namespace {

constexpr int kReaped = 32;  // completions that are polled at once
constexpr uint8_t kUnread = 0xEE;

template <class Take>
void poll_all(const Session& session, Take&& take) {
    std::array<ibv_wc, kReaped> completions;
    for (size_t rail = 0; rail < session.rails(); ++rail) {
        const int count = ibv_poll_cq(session.cq(rail), kReaped, completions.data());
        for (int i = 0; i < count; ++i) {
            const ibv_wc& wc = completions[static_cast<size_t>(i)];
            take(wc);
            if (wc.status != IBV_WC_SUCCESS)
                throw Failure("QP " + std::to_string(wc.qp_num) + ": " + ibv_wc_status_str(wc.status));
        }
    }
}

ibv_wr_opcode opcode_of(Mode mode) {
    switch (mode) {
        case Mode::kRead:
            return IBV_WR_RDMA_READ;
        case Mode::kSend:
            return IBV_WR_SEND;
        case Mode::kAtomic:
            return IBV_WR_ATOMIC_FETCH_AND_ADD;
        default:
            return IBV_WR_RDMA_WRITE;
    }
}

}  // namespace

Initiator::Initiator(const std::vector<Rail>& rails, const Options& options, Connection connection)
    : options_(options),
      connection_(std::move(connection)),
      session_(rails, options, options.plan, true),
      plan_(session_.plan()),
      queues_(plan_.qps),
      requests_(2 * options.batch),
      pieces_(2 * options.batch),
      interval_ns_(options.rate_gbps > 0 ? plan_.size * 8.0 / options.rate_gbps : 0) {
    for (Queue& queue : queues_) queue.begun_ns.resize(plan_.depth);
    for (uint32_t q = 0; q < plan_.qps; ++q)
        for (uint32_t slot = 0; slot < plan_.depth; ++slot) fill(session_.slot(q, slot), plan_.size, q, slot);
    connection_.send(session_.mine());
    session_.connect(connection_.receive_introduction());
}

void Initiator::poll(uint64_t now_ns) {
    if (started_ns_ == 0) started_ns_ = now_ns;
    reap(now_ns);
    if (options_.duration_s > 0 && static_cast<double>(now_ns - started_ns_) >= options_.duration_s * 1e9)
        finished_ = true;
    if (options_.count != 0 && posted_ == options_.count) finished_ = true;
    if (stopping_ || finished_) return;
    for (uint32_t looked = 0; looked < plan_.qps; ++looked) {
        const uint32_t q = next_;
        next_ = next_ + 1 == plan_.qps ? 0 : next_ + 1;
        if (const uint32_t count = room(queues_[q], now_ns); count != 0) post(q, count, now_ns);
    }
}

// Returns how many requests may be posted to a QP now: a whole list, unless the run has fewer left or the rate permits
// fewer.
uint32_t Initiator::room(const Queue& queue, uint64_t now_ns) const {
    uint64_t count = options_.batch;
    if (options_.count != 0) count = std::min(count, options_.count - posted_);
    if (interval_ns_ != 0) {
        const auto due = static_cast<uint64_t>(static_cast<double>(now_ns - started_ns_) / interval_ns_) + 1;
        count = std::min(count, due > posted_ ? due - posted_ : 0);
    }
    return plan_.depth - (queue.posted - queue.completed) < count ? 0 : static_cast<uint32_t>(count);
}

void Initiator::post(uint32_t q, uint32_t count, uint64_t now_ns) {
    Queue& queue = queues_[q];
    size_t used = 0;
    const auto add = [&](ibv_wr_opcode opcode, uint32_t local, uint32_t remote, bool signaled) {
        ibv_sge& piece = pieces_[used];
        piece = {reinterpret_cast<uint64_t>(session_.slot(q, local)), plan_.size, session_.lkey(q)};
        ibv_send_wr& request = requests_[used];
        request = {};
        request.wr_id = q;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = opcode;
        request.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            request.wr.atomic = {session_.remote_slot(q, 0), 1, 0, session_.remote_key(q)};
        } else if (opcode != IBV_WR_SEND) {
            request.wr.rdma = {session_.remote_slot(q, remote), session_.remote_key(q)};
        }
        if (used++ != 0) requests_[used - 2].next = &request;
    };
    for (uint32_t i = 0; i < count; ++i, ++queue.posted, ++posted_) {
        const auto slot = static_cast<uint32_t>(queue.posted % plan_.depth);
        // With a rate, a request begins when it was due, so that the time it waited here for a slow network counts.
        queue.begun_ns[slot] = interval_ns_ != 0
                                   ? started_ns_ + static_cast<uint64_t>(static_cast<double>(posted_) * interval_ns_)
                                   : now_ns;
        const bool read_back = plan_.verify && plan_.mode == Mode::kWrite;
        if (plan_.verify && (plan_.mode == Mode::kWrite || plan_.mode == Mode::kSend))
            fill(session_.slot(q, slot), plan_.size, q, queue.posted);
        if (plan_.verify && plan_.mode == Mode::kRead) std::memset(session_.slot(q, slot), kUnread, plan_.size);
        if (read_back) std::memset(session_.slot(q, plan_.depth + slot), kUnread, plan_.size);
        add(opcode_of(plan_.mode), slot, slot, !read_back);
        if (read_back) add(IBV_WR_RDMA_READ, plan_.depth + slot, slot, true);
    }
    ibv_send_wr* bad = nullptr;
    if (const int error = ibv_post_send(session_.qp(q), requests_.data(), &bad); error != 0)
        throw Failure(std::string("ibv_post_send: ") + std::strerror(error));
}

void Initiator::reap(uint64_t now_ns) {
    poll_all(session_, [&](const ibv_wc& wc) {
        const auto q = static_cast<uint32_t>(wc.wr_id);
        Queue& queue = queues_[q];
        if (wc.status != IBV_WC_SUCCESS) {
            ++failed_;
            return;
        }
        const uint64_t begun_ns = queue.begun_ns[queue.completed % plan_.depth];
        latency_.record(now_ns > begun_ns ? now_ns - begun_ns : 0);
        if (plan_.verify) check(q, queue.completed);
        ++queue.completed;
        ++completed_;
    });
}

void Initiator::check(uint32_t q, uint64_t message) {
    const auto slot = static_cast<uint32_t>(message % plan_.depth);
    bool right = true;
    if (plan_.mode == Mode::kWrite) {
        right = is_filled(session_.slot(q, plan_.depth + slot), plan_.size, q, message);
    } else if (plan_.mode == Mode::kRead) {
        right = is_filled(session_.slot(q, slot), plan_.size, q, slot);
    } else if (plan_.mode == Mode::kAtomic) {
        uint64_t before;
        std::memcpy(&before, session_.slot(q, slot), sizeof before);
        right = before == message;
    }
    errors_ += !right;
}

void Initiator::settle() {
    connection_.send(Account{completed_, errors_});
    errors_ += connection_.receive_account().errors;
}

Report Initiator::report(double) const {
    uint64_t under_way = 0;
    for (const Queue& queue : queues_) under_way += queue.posted - queue.completed;
    return {
        {"qps", plan_.qps},
        {"requests",
         {{"submitted", posted_}, {"completed", completed_}, {"failed", failed_}, {"under_way", under_way - failed_}}},
        {"latency_us", latency_us(latency_)}};
}

Responder::Responder(const std::vector<Rail>& rails, const Options& options, Connection connection,
                     const Introduction& theirs)
    : connection_(std::move(connection)),
      session_(rails, options, theirs.plan, false),
      plan_(theirs.plan),
      received_(plan_.qps) {
    for (uint32_t q = 0; q < plan_.qps; ++q) {
        // Prepares the content for READs and the start values for atomics.
        for (uint32_t slot = 0; slot < plan_.depth && plan_.mode == Mode::kRead; ++slot)
            fill(session_.slot(q, slot), plan_.size, q, slot);
        for (uint32_t slot = 0; slot < 2 * plan_.depth && plan_.mode == Mode::kSend; ++slot)
            session_.post_receive(q, slot);
    }
    session_.connect(theirs);
    connection_.send(session_.mine());
}

void Responder::poll(uint64_t) {
    reap();
}

void Responder::reap() {
    poll_all(session_, [&](const ibv_wc& wc) {
        if (wc.status != IBV_WC_SUCCESS) return;
        const auto q = static_cast<uint32_t>(wc.wr_id);
        const uint64_t message = received_[q]++;
        const auto slot = static_cast<uint32_t>(message % (2 * plan_.depth));
        ++messages_;
        if (plan_.verify)
            errors_ += wc.byte_len != plan_.size || !is_filled(session_.slot(q, slot), plan_.size, q, message);
        session_.post_receive(q, slot);
    });
}

void Responder::settle() {
    const Account theirs = connection_.receive_account();
    // Messages that the initiator saw acknowledged have arrived here.
    for (uint64_t before = messages_ + 1; before != messages_;) {
        before = messages_;
        reap();
    }
    if (plan_.mode == Mode::kAtomic) {
        uint64_t sum = 0;
        for (uint32_t q = 0; q < plan_.qps; ++q) {
            uint64_t count;
            std::memcpy(&count, session_.slot(q, 0), sizeof count);
            sum += count;
        }
        errors_ += sum != theirs.messages;
    }
    if (plan_.mode == Mode::kSend) errors_ += messages_ != theirs.messages;
    messages_ = theirs.messages;
    connection_.send(Account{messages_, errors_});
    errors_ += theirs.errors;
}

Report Responder::report(double) const {
    return {{"qps", plan_.qps}};
}

}  // namespace rove::testpmd
