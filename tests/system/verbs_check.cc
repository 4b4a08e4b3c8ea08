// SPDX-License-Identifier: Apache-2.0
// Moves data between two processes with every verb and verifies every byte, completion and guard, which perftest does
// not. One side runs without HOST and listens; the other gets HOST. Both get the same --verbs, --sizes, ... . In a
// round the target prepares its memory, both meet on TCP, the initiator posts `depth` requests on every QP at once and
// reaps them, both meet again, and the receiving side verifies. Prints one line of JSON per verb. Sizes in bytes.
#include <endian.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "peer.h"

namespace {

using peer::fail;

constexpr size_t kGrhBytes = 40;    // in front of the data that a UD QP receives
constexpr size_t kGuardBytes = 64;  // behind every slot; never written
constexpr uint8_t kUntouched = 0xEE, kGuard = 0xA5;

struct Options {
    std::string host, device, transport = "rc";
    std::vector<std::string> verbs{"send", "send_imm", "write", "write_imm", "read", "faa", "cas"};
    std::vector<uint32_t> sizes{1, 7, 64, 1000, 4096, 65537};
    uint16_t port = 18515;
    int gid_index = 1;
    uint32_t qps = 1, rounds = 4, depth = 8;
    bool srq = false, events = false, both = false, late = false, lossy = false, peer_dies = false;
    peer::QpOptions qp;
    bool server() const { return host.empty(); }
};

struct Verb {
    const char* name;
    ibv_wr_opcode opcode;
    bool receives;  // takes a receive request at the target
    bool writes;    // writes the target's memory without one, or with one for the immediate
    bool rc_only;
};
constexpr Verb kVerbs[] = {
    {"send", IBV_WR_SEND, true, false, false},
    {"send_imm", IBV_WR_SEND_WITH_IMM, true, false, false},
    {"write", IBV_WR_RDMA_WRITE, false, true, false},
    {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, true, true, false},
    {"read", IBV_WR_RDMA_READ, false, false, true},
    {"faa", IBV_WR_ATOMIC_FETCH_AND_ADD, false, false, true},
    {"cas", IBV_WR_ATOMIC_CMP_AND_SWP, false, false, true},
};

const Verb& verb_named(const std::string& name) {
    const Verb* verb =
        std::find_if(std::begin(kVerbs), std::end(kVerbs), [&](const Verb& v) { return v.name == name; });
    if (verb == std::end(kVerbs)) fail("no verb '%s'", name.c_str());
    return *verb;
}

// The data that a process sends its peer once.
struct Hello {
    uint64_t source_va, sink_va;
    uint32_t rkey;
    ibv_gid gid;
};
struct QpNumbers {
    uint32_t qpn, psn;
};

class Check {
  public:
    explicit Check(const Options& options) : options_(options), device_(options.device, options.gid_index) {
        options_.qp.type = options.transport == "rc" ? IBV_QPT_RC : options.transport == "uc" ? IBV_QPT_UC : IBV_QPT_UD;
        const uint32_t largest = *std::max_element(options_.sizes.begin(), options_.sizes.end());
        slot_bytes_ = (kGrhBytes + std::max(largest, 8U) + kGuardBytes + 63) / 64 * 64;
        slots_ = static_cast<size_t>(options_.qps) * options_.depth;
        memory_.resize(2 * slots_ * slot_bytes_);
        mr_ = ibv_reg_mr(
            device_.pd, memory_.data(), memory_.size(),
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
        if (mr_ == nullptr) fail("ibv_reg_mr: %s", strerror(errno));
        if (options_.events) channel_ = ibv_create_comp_channel(device_.context);
        cq_ = ibv_create_cq(device_.context, static_cast<int>(2 * slots_ + 16), nullptr, channel_, 0);
        if (cq_ == nullptr) fail("ibv_create_cq: %s", strerror(errno));
        if (options_.events && ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
        if (options_.srq) {
            ibv_srq_init_attr init{};
            init.attr = {.max_wr = static_cast<uint32_t>(slots_), .max_sge = options_.qp.sge, .srq_limit = 0};
            options_.qp.srq = ibv_create_srq(device_.pd, &init);
            if (options_.qp.srq == nullptr) fail("ibv_create_srq: %s", strerror(errno));
        }
        options_.qp.depth = options_.depth;
    }

    ~Check() {
        if (events_seen_ > 0) ibv_ack_cq_events(cq_, events_seen_);
        int bad = 0;
        if (options_.qp.srq != nullptr) bad |= ibv_destroy_srq(options_.qp.srq);
        bad |= ibv_destroy_cq(cq_);
        if (channel_ != nullptr) bad |= ibv_destroy_comp_channel(channel_);
        bad |= ibv_dereg_mr(mr_);
        if (bad != 0) std::fprintf(stderr, "an object could not be destroyed\n");
    }

    void connect() {
        if (options_.server())
            control_.accept_peer(options_.port);
        else
            control_.connect_to(options_.host, options_.port, 30);
        Hello hello{reinterpret_cast<uint64_t>(memory_.data()), reinterpret_cast<uint64_t>(sink(0)), mr_->rkey,
                    device_.gid};
        remote_ = control_.exchange(hello);
        for (uint32_t q = 0; q < options_.qps; ++q) {
            ibv_qp* qp = peer::create_qp(device_, cq_, options_.qp);
            qps_.push_back(qp);
            index_of_[qp->qp_num] = q;
            peer::to_init(qp, options_.qp);
        }
        for (uint32_t q = 0; q < options_.qps; ++q) {
            const uint32_t psn = (0xFFFFF0 + q * 7919) & 0xFFFFFF;  // near the wrap
            const auto theirs = control_.exchange(QpNumbers{qps_[q]->qp_num, psn});
            const peer::QpAddress address{theirs.qpn, theirs.psn, remote_.gid};
            peer::to_rtr(qps_[q], device_, options_.qp, address);
            peer::to_rts(qps_[q], options_.qp, psn);
            remote_qpns_.push_back(theirs.qpn);
            if (options_.qp.type == IBV_QPT_UD && ah_ == nullptr) ah_ = peer::create_ah(device_, options_.qp, address);
        }
        control_.barrier();
    }

    void disconnect() {
        for (ibv_qp* qp : qps_)
            if (const int error = ibv_destroy_qp(qp)) fail("ibv_destroy_qp: %s", strerror(error));
        qps_.clear();
        index_of_.clear();
        remote_qpns_.clear();
        if (ah_ != nullptr) ibv_destroy_ah(ah_);
        ah_ = nullptr;
        control_.close_peer();
    }

    void run(const Verb& verb) {
        const double start = peer::now_s();
        operations_ = lost_ = bytes_ = 0;
        std::fill(counters_.begin(), counters_.end(), 0);
        for (uint32_t round = 0; round < options_.rounds; ++round)
            for (const uint32_t size : options_.sizes) {
                if (options_.qp.type == IBV_QPT_UD && size > options_.qp.mtu) continue;
                one_round(verb, round, size);
            }
        std::printf("{\"verb\": \"%s\", \"transport\": \"%s\", \"operations\": %" PRIu64 ", \"lost\": %" PRIu64
                    ", \"bytes\": %" PRIu64 ", \"seconds\": %.3f}\n",
                    verb.name, options_.transport.c_str(), operations_, lost_, bytes_, peer::now_s() - start);
        std::fflush(stdout);
    }

    // The target of run_until_death().
    void serve_until_death(const Verb& verb) {
        if (verb.receives) post_receives(options_.sizes[0]);  // later messages get RNR NAKs
        pause();
    }

    // Keeps requests outstanding until the peer dies; then every one must complete in error.
    void run_until_death(const Verb& verb) {
        uint32_t size = options_.sizes[0];
        uint64_t posted = 0, good = 0;
        for (uint32_t i = 0; i < options_.depth; ++i, ++posted) post(verb, 0, 0, size, i, 1);
        ibv_wc wc;
        while (true) {
            next_completion(wc);
            if (wc.status != IBV_WC_SUCCESS) break;
            if (++good == 1) {
                std::printf("{\"running\": true}\n");
                std::fflush(stdout);
            }
            post(verb, 0, 0, size, posted++ % options_.depth, 1);
        }
        const double error_at = peer::now_s();
        const ibv_wc_status first = wc.status;
        uint64_t flushed = 0;
        for (uint64_t left = posted - good - 1; left > 0; --left, ++flushed) {
            next_completion(wc);
            if (wc.status != IBV_WC_WR_FLUSH_ERR) fail("after the error: %s", ibv_wc_status_str(wc.status));
        }
        post(verb, 0, 0, size, 0, 1);
        next_completion(wc);
        if (wc.status != IBV_WC_WR_FLUSH_ERR) fail("posted to a QP in error: %s", ibv_wc_status_str(wc.status));
        std::printf("{\"died\": true, \"status\": \"%s\", \"error_at\": %.6f, \"good\": %" PRIu64
                    ", \"flushed\": %" PRIu64 "}\n",
                    ibv_wc_status_str(first), error_at, good, flushed);
        std::fflush(stdout);
    }

  private:
    uint8_t* source(size_t slot) { return memory_.data() + slot * slot_bytes_; }
    uint8_t* sink(size_t slot) { return source(slots_ + slot); }
    size_t slot_of(uint32_t q, uint32_t d) const { return static_cast<size_t>(q) * options_.depth + d; }
    // Returns a seed that depends on the side that made the data, the round, the size and the slot.
    static uint64_t seed_of(bool by_server, uint32_t round, uint32_t size, size_t slot) {
        return ((by_server ? 1ULL << 63 : 0) | static_cast<uint64_t>(round) << 48 | static_cast<uint64_t>(size) << 24) +
               slot * 0xD1342543DE82EF95;
    }
    static uint32_t immediate_of(uint32_t round, uint32_t d) { return round << 16 | d; }

    void one_round(const Verb& verb, uint32_t round, uint32_t size) {
        const bool initiate = !options_.server() || options_.both, target = options_.server() || options_.both;
        const bool atomic = verb.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || verb.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
        if (atomic) size = 8;
        for (size_t slot = 0; slot < slots_; ++slot) {
            peer::fill(source(slot), size, seed_of(options_.server(), round, size, slot));
            std::memset(source(slot) + size, kGuard, slot_bytes_ - size);
            std::memset(sink(slot), kUntouched, slot_bytes_);
        }
        if (atomic) {
            if (counters_.empty()) counters_.resize(options_.qps);
            for (uint32_t q = 0; q < options_.qps; ++q) std::memcpy(source(slot_of(q, 0)), &counters_[q], 8);
            model_ = counters_;
        }
        arrivals_.assign(options_.qps, 0);
        arrived_.assign(slots_, false);
        if (target && verb.receives && !options_.late) post_receives(size);
        control_.barrier();
        if (target && verb.receives && options_.late) {
            usleep(2000);
            post_receives(size);
        }

        size_t sends = 0, receives = target && verb.receives ? slots_ : 0;
        if (initiate)
            for (uint32_t q = 0; q < options_.qps; ++q) {
                // Lists and single posts alternate.
                const uint32_t list = round % 2 == 0 ? 1 : options_.depth;
                for (uint32_t d = 0; d < options_.depth; d += list) post(verb, q, round, size, d, list);
                sends += options_.depth;
            }
        ibv_wc wc;
        while (sends > 0 || (receives > 0 && !options_.lossy)) {
            next_completion(wc);
            if (on_completion(verb, wc, round, size))
                --receives;
            else
                --sends;
        }
        control_.barrier();
        // A lossy unreliable transport delivers nothing more after this time.
        for (const double quiet = peer::now_s() + 0.1; options_.lossy && peer::now_s() < quiet;)
            if (ibv_poll_cq(cq_, 1, &wc) == 1 && on_completion(verb, wc, round, size)) --receives;
        if (options_.lossy && receives > 0) reset_receives(receives);
        if (target) verify_target(verb, round, size);
        if (atomic) verify_counters(verb, initiate, target);
        if (initiate && verb.opcode == IBV_WR_RDMA_READ)
            for (size_t slot = 0; slot < slots_; ++slot) verify_slot("read", sink(slot), slot, round, size);
        for (size_t slot = 0; slot < slots_; ++slot)
            for (size_t at = atomic ? 8 : size; at < slot_bytes_; ++at)
                if (source(slot)[at] != kGuard)
                    fail("%s: guard of source slot %zu overwritten at %zu", verb.name, slot, at);
        operations_ += slots_;
        bytes_ += slots_ * size;
        control_.barrier();
    }

    void post_receives(uint32_t size) {
        const bool ud = options_.qp.type == IBV_QPT_UD;
        for (uint32_t q = 0; q < options_.qps; ++q)
            for (uint32_t d = 0; d < options_.depth; ++d) {
                const size_t slot = slot_of(q, d);
                ibv_sge sge{reinterpret_cast<uint64_t>(sink(slot)), size + (ud ? static_cast<uint32_t>(kGrhBytes) : 0),
                            mr_->lkey};
                ibv_recv_wr wr{.wr_id = slot, .next = nullptr, .sg_list = &sge, .num_sge = 1}, *bad;
                const int error =
                    options_.srq ? ibv_post_srq_recv(options_.qp.srq, &wr, &bad) : ibv_post_recv(qps_[q], &wr, &bad);
                if (error != 0) fail("post receive: %s", strerror(error));
            }
    }

    // Receives without a message must not be filled by a later round: the QPs go through RESET, which drops them.
    void reset_receives(size_t missing) {
        lost_ += missing;
        for (uint32_t q = 0; q < options_.qps; ++q) {
            ibv_qp_attr attributes{};
            attributes.qp_state = IBV_QPS_RESET;
            if (ibv_modify_qp(qps_[q], &attributes, IBV_QP_STATE) != 0) fail("ibv_modify_qp to RESET");
            peer::to_init(qps_[q], options_.qp);
            // A UC responder resumes at the next first packet, whatever its PSN.
            peer::to_rtr(qps_[q], device_, options_.qp, {remote_qpns_[q], 0, remote_.gid});
            peer::to_rts(qps_[q], options_.qp, 0);
        }
    }

    void post(const Verb& verb, uint32_t q, uint32_t round, uint32_t size, uint32_t first, uint32_t count) {
        const bool from_sink = verb.opcode == IBV_WR_RDMA_READ || verb.rc_only;  // the answer's destination
        std::vector<ibv_send_wr> list(count);
        std::vector<ibv_sge> sges(static_cast<size_t>(count) * options_.qp.sge);
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t d = first + i;
            const size_t slot = slot_of(q, d);
            ibv_send_wr& wr = list[i];
            wr = {};
            wr.wr_id = slot;
            wr.next = i + 1 < count ? &list[i + 1] : nullptr;
            wr.opcode = verb.opcode;
            wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED;
            if (!from_sink && size <= options_.qp.inline_bytes) wr.send_flags |= IBV_SEND_INLINE;
            wr.sg_list = &sges[static_cast<size_t>(i) * options_.qp.sge];
            const uint8_t* data = from_sink ? sink(slot) : source(slot);
            const uint32_t parts = std::min(options_.qp.sge, std::max(size, 1U));
            for (uint32_t part = 0, at = 0; part < parts; ++part) {
                const uint32_t length = part + 1 < parts ? size / parts : size - at;
                wr.sg_list[part] = {reinterpret_cast<uint64_t>(data + at), length, mr_->lkey};
                at += length;
            }
            wr.num_sge = static_cast<int>(parts);
            wr.imm_data = htobe32(immediate_of(round, d));
            if (verb.writes || verb.opcode == IBV_WR_RDMA_READ) {
                const uint64_t base = verb.writes ? remote_.sink_va : remote_.source_va;
                wr.wr.rdma = {.remote_addr = base + slot * slot_bytes_, .rkey = remote_.rkey};
            } else if (verb.rc_only) {
                wr.num_sge = 1;
                wr.sg_list[0].length = 8;
                wr.wr.atomic = atomic_request(verb, q, d);
            } else if (options_.qp.type == IBV_QPT_UD) {
                wr.wr.ud = {.ah = ah_, .remote_qpn = remote_qpns_[q], .remote_qkey = peer::kQkey};
            }
        }
        ibv_send_wr* bad;
        if (const int error = ibv_post_send(qps_[q], list.data(), &bad))
            fail("ibv_post_send %s: %s", verb.name, strerror(error));
    }

    // All atomics of a QP use one counter at the target, in order; every third compare must fail.
    decltype(ibv_send_wr::wr.atomic) atomic_request(const Verb& verb, uint32_t q, uint32_t d) {
        const uint64_t at = remote_.source_va + slot_of(q, 0) * slot_bytes_;
        if (verb.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            model_[q] += q + 1;
            return {at, q + 1, 0, remote_.rkey};
        }
        const uint64_t current = model_[q];
        if (d % 3 == 2) return {at, ~current, 0xBAD, remote_.rkey};
        model_[q] = current * 6364136223846793005ULL + 1442695040888963407ULL;
        return {at, current, model_[q], remote_.rkey};
    }

    void verify_counters(const Verb& verb, bool initiate, bool target) {
        for (uint32_t q = 0; q < options_.qps; ++q) {
            uint64_t value = counters_[q];
            for (uint32_t d = 0; d < options_.depth; ++d) {
                uint64_t original;
                std::memcpy(&original, sink(slot_of(q, d)), 8);
                if (initiate && original != value)
                    fail("%s: QP %u request %u returned %" PRIx64 ", not %" PRIx64, verb.name, q, d, original, value);
                if (verb.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
                    value += q + 1;
                else if (d % 3 != 2)
                    value = value * 6364136223846793005ULL + 1442695040888963407ULL;
            }
            counters_[q] = value;
            uint64_t left;
            std::memcpy(&left, source(slot_of(q, 0)), 8);
            if (target && left != value)
                fail("%s: counter of QP %u is %" PRIx64 ", not %" PRIx64, verb.name, q, left, value);
        }
    }

    void next_completion(ibv_wc& wc) {
        while (true) {
            const int found = ibv_poll_cq(cq_, 1, &wc);
            if (found < 0) fail("ibv_poll_cq");
            if (found == 1) return;
            if (channel_ == nullptr) continue;
            // The queue is armed: completions before that were just polled.
            ibv_cq* cq;
            void* context;
            if (ibv_get_cq_event(channel_, &cq, &context) != 0) fail("ibv_get_cq_event");
            ++events_seen_;
            if (ibv_req_notify_cq(cq_, 0) != 0) fail("ibv_req_notify_cq");
        }
    }

    // Returns true if it was a receive.
    bool on_completion(const Verb& verb, const ibv_wc& wc, uint32_t round, uint32_t size) {
        if (wc.status != IBV_WC_SUCCESS)
            fail("%s, %u bytes: completion of slot %" PRIu64 ": %s (vendor %u)", verb.name, size, wc.wr_id,
                 ibv_wc_status_str(wc.status), wc.vendor_err);
        if ((wc.opcode & IBV_WC_RECV) == 0) return false;
        const auto owner = index_of_.find(wc.qp_num);
        if (owner == index_of_.end()) fail("completion for unknown QP %u", wc.qp_num);
        const uint32_t q = owner->second;
        uint32_t d = arrivals_[q]++;
        const bool immediate = verb.opcode == IBV_WR_SEND_WITH_IMM || verb.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
        if (immediate != ((wc.wc_flags & IBV_WC_WITH_IMM) != 0)) fail("%s: flags %x", verb.name, wc.wc_flags);
        if (immediate) {
            const uint32_t value = be32toh(wc.imm_data);
            if (options_.lossy) d = value & 0xFFFF;
            if (value != immediate_of(round, d))
                fail("%s: immediate %x, not %x", verb.name, value, immediate_of(round, d));
        }
        if (d >= options_.depth) fail("%s: more messages than were sent", verb.name);
        const bool ud = options_.qp.type == IBV_QPT_UD;
        if (wc.byte_len != size + (ud ? kGrhBytes : 0)) fail("%s: byte_len %u, sent %u", verb.name, wc.byte_len, size);
        const size_t sent = slot_of(q, d), slot = verb.writes ? sent : wc.wr_id;
        if (arrived_[sent]) fail("%s: message %zu came twice", verb.name, sent);
        arrived_[sent] = true;
        verify_slot(verb.name, sink(slot) + (ud ? kGrhBytes : 0), sent, round, size,
                    slot_bytes_ - (ud ? kGrhBytes : 0));
        return true;
    }

    void verify_slot(const char* verb, const uint8_t* data, size_t slot, uint32_t round, uint32_t size,
                     size_t room = 0) {
        const size_t at = peer::first_difference(data, size, seed_of(!options_.server(), round, size, slot));
        if (at != size)
            fail("%s: slot %zu, round %u, %u bytes: byte %zu is %02x", verb, slot, round, size, at, data[at]);
        for (size_t i = size; i < (room != 0 ? room : slot_bytes_); ++i)
            if (data[i] != kUntouched)
                fail("%s: slot %zu: byte %zu behind a message of %u overwritten", verb, slot, i, size);
    }

    void verify_target(const Verb& verb, uint32_t round, uint32_t size) {
        if (!verb.writes || verb.receives) return;
        const bool reliable = options_.qp.type == IBV_QPT_RC;
        // The arrival of an unreliable WRITE is not reported: poll until all is there, or for a second.
        const double deadline = peer::now_s() + (reliable ? 0 : 1);
        for (size_t slot = 0; slot < slots_; ++slot) {
            const uint64_t seed = seed_of(!options_.server(), round, size, slot);
            while (!reliable && peer::now_s() < deadline && peer::first_difference(sink(slot), size, seed) != size) {
                ibv_wc wc;
                ibv_poll_cq(cq_, 1, &wc);
            }
            if (options_.lossy && peer::first_difference(sink(slot), size, seed) != size)
                ++lost_;
            else
                verify_slot(verb.name, sink(slot), slot, round, size);
        }
    }

    Options options_;
    peer::Device device_;
    peer::Control control_;
    std::vector<uint8_t> memory_;  // sources, then sinks, a slot each per QP and request
    size_t slot_bytes_ = 0, slots_ = 0;
    ibv_mr* mr_ = nullptr;
    ibv_comp_channel* channel_ = nullptr;
    ibv_cq* cq_ = nullptr;
    ibv_ah* ah_ = nullptr;
    std::vector<ibv_qp*> qps_;
    std::vector<uint32_t> remote_qpns_;
    std::unordered_map<uint32_t, uint32_t> index_of_;
    Hello remote_{};
    std::vector<uint32_t> arrivals_;  // messages received in this round, per QP
    std::vector<bool> arrived_;
    std::vector<uint64_t> counters_, model_;  // per QP: before this round; after the last posted request
    unsigned events_seen_ = 0;
    uint64_t operations_ = 0, lost_ = 0, bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app{"Verified data mover over verbs"};
    app.add_option("host", options.host, "the listening side; none: listen");
    app.add_option("--port", options.port, "TCP port of the control channel");
    app.add_option("--device", options.device, "verbs device; default the first");
    app.add_option("--gid-index", options.gid_index);
    app.add_option("--transport", options.transport)->check(CLI::IsMember({"rc", "uc", "ud"}));
    app.add_option("--verbs", options.verbs)->delimiter(',');
    app.add_option("--sizes", options.sizes, "bytes")->delimiter(',');
    app.add_option("--mtu", options.qp.mtu, "path MTU, bytes");
    app.add_option("--qps", options.qps);
    app.add_option("--rounds", options.rounds);
    app.add_option("--depth", options.depth, "requests outstanding per QP");
    app.add_option("--sge", options.qp.sge, "pieces that a request is gathered from or scattered to");
    app.add_option("--inline", options.qp.inline_bytes, "send inline up to this size");
    app.add_option("--timeout", options.qp.timeout, "4.096 us * 2^timeout");
    app.add_option("--retry", options.qp.retry);
    app.add_option("--sl", options.qp.sl);
    app.add_flag("--srq", options.srq, "shared receive queue");
    app.add_flag("--events", options.events, "sleep on completion events");
    app.add_flag("--both", options.both, "both sides initiate at once");
    app.add_flag("--late", options.late, "receives are posted after the messages were sent: RNR");
    app.add_flag("--lossy", options.lossy, "unreliable transports may lose messages");
    app.add_flag("--peer-dies", options.peer_dies,
                 "the listening side is killed in the first of --verbs: see the errors, then meet a new one");
    CLI11_PARSE(app, argc, argv);

    Check check(options);
    check.connect();
    if (options.peer_dies) {
        const Verb& verb = verb_named(options.verbs.front());
        if (options.server()) check.serve_until_death(verb);
        check.run_until_death(verb);
        check.disconnect();
        check.connect();
    }
    for (const std::string& name : options.verbs) {
        const Verb& verb = verb_named(name);
        if (verb.rc_only && options.transport != "rc") fail("'%s' needs RC", name.c_str());
        check.run(verb);
    }
    check.disconnect();
    return 0;
}
