// SPDX-License-Identifier: Apache-2.0
// The responder against Linux rxe: with the requester's packets of a capture it gives the same answers as rxe.
//
// Memory (regions at the capture's addresses), QP numbers and keys are the same. Our tables assign numbers of their
// own, so the numbers in each parsed packet are replaced before the engine sees it; nothing else is changed. The .vs
// script runs along with the packets: its receives are posted, its stores done and its completions and memory checked
// in their original order. A step that follows a request in the script waits for the capture's last packet of that
// request. (A SEND that got RNR NAKs waits for its receive, which is posted before the first packet whose answer is not
// an RNR NAK.)
//
// Answers are equal if the sequence of (opcode, PSN, AETH syndrome, MSN, payload) is that of the capture, where only
// the last of a run of plain ACKs counts on both sides: the responder chooses how many packets one ACK answers. In
// rc_loss answers were lost before the capture was taken; each captured answer must occur among ours, in order. There
// rxe answers a repeated READ with Middle and Last only; ours begins each with First or Only, as IBTA 9.7.5.1.3 demands
// for a READ that is executed again. These pairs count as equal. Where rxe violates IBTA, the capture is corrected:
// as_of_ibta().
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "support/pcap.h"
#include "transport/virtual_network.h"

namespace rove::test {
namespace {

struct Answer {
    uint8_t opcode;
    uint32_t psn, syndrome, msn;
    std::vector<uint8_t> payload;
    uint64_t original;
    bool operator==(const Answer&) const = default;
    bool is_plain_ack() const { return opcode == 0x11 && syndrome == wire::kSyndromeAck; }
    friend void PrintTo(const Answer& a, std::ostream* out) {
        *out << std::hex << "op " << int{a.opcode} << std::dec << " psn " << a.psn << std::hex << " aeth " << a.syndrome
             << std::dec << " msn " << a.msn << " bytes " << a.payload.size();
    }
};

Answer answer_of(const wire::Headers& h, const uint8_t* payload, size_t bytes) {
    Answer a{h.bth.opcode, h.bth.psn, 0, 0, std::vector<uint8_t>(payload, payload + bytes), 0};
    const uint16_t has = wire::opcode_info(h.bth.opcode).extensions;
    if (has & wire::kHasAeth) {
        a.syndrome = h.aeth.syndrome;
        a.msn = h.aeth.msn;
        // rxe gives no credits in ACKs (31); a NAK's low bits are its code.
    }
    if (has & wire::kHasAtomicAckEth) a.original = h.atomic_original;
    return a;
}

// Returns rxe's form of an answer to a repeated READ.
Answer as_repeated(Answer a) {
    using wire::Op;
    if (a.opcode == static_cast<uint8_t>(Op::kReadResponseFirst)) {
        a.opcode = static_cast<uint8_t>(Op::kReadResponseMiddle);
        a.syndrome = a.msn = 0;
    } else if (a.opcode == static_cast<uint8_t>(Op::kReadResponseOnly)) {
        a.opcode = static_cast<uint8_t>(Op::kReadResponseLast);
    }
    return a;
}

// Returns the answers with rxe's deviations from IBTA corrected, as rove gives them (docs/protocol/roce.md).
std::vector<Answer> as_of_ibta(const std::vector<Answer>& all, bool has_errors) {
    std::vector<Answer> kept;
    for (Answer a : all) {
        const bool is_ack = a.opcode == wire::opcode(wire::Service::kRc, wire::Op::kAck);
        const bool behind_rnr = !kept.empty() && kept.back().syndrome >> 5 == 1 && kept.back().psn == a.psn;
        if (is_ack && behind_rnr && a.syndrome == wire::kSyndromeNakSequence) continue;
        if (is_ack && has_errors && a.syndrome == wire::kSyndromeNakRemoteOperation)
            a.syndrome = wire::kSyndromeNakInvalidRequest;
        // The acknowledged packets there are SENDs with invalidate of a bad key.
        if (is_ack && has_errors && a.syndrome == wire::kSyndromeAck) a.syndrome = wire::kSyndromeNakRemoteAccess;
        kept.push_back(a);
    }
    return kept;
}

std::vector<Answer> without_coalescing(const std::vector<Answer>& all) {
    std::vector<Answer> kept;
    for (const Answer& a : all) {
        if (!kept.empty() && kept.back().is_plain_ack() && a.is_plain_ack()) kept.pop_back();
        kept.push_back(a);
    }
    return kept;
}

bool is_request(uint8_t opcode) {
    const wire::Op op = wire::op_of(opcode);
    return wire::service_of(opcode) != wire::Service::kRc || op < wire::Op::kReadResponseFirst ||
           op > wire::Op::kAtomicAck;
}

uint32_t crc32(const uint8_t* data, size_t bytes) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

class Replay {
  public:
    explicit Replay(const std::string& name) : has_errors_(name == "rc_nak") {
        const std::string base = std::string(ROVE_TEST_DATA) + "/" + name;
        for (const Frame& frame : read_pcap(base + ".pcap")) {
            packets_.push_back({frame, {}});
            EXPECT_EQ(wire::parse_frame(packets_.back().bytes, packets_.back().parsed), wire::ParseError::kNone);
        }
        // The requester gets the address of the first packet; each of our hosts plays one of the two.
        gids_[0] = packets_[0].parsed.flow.src;
        gids_[1] = packets_[0].parsed.flow.dst;
        std::ifstream script(base + ".vs"), output(base + ".out");
        std::string line;
        while (std::getline(script, line)) steps_.push_back(line);
        while (std::getline(output, line)) output_.push_back(line);
        for (uint32_t i = 0; i < 2; ++i) {
            hosts_[i] = std::make_unique<Host>(i, transport::Config{});
            hosts_[i]->sink.transmit = [this, i](const Path&, const wire::Headers&, std::vector<uint8_t>&& frame) {
                wire::ParsedFrame parsed;
                ASSERT_EQ(wire::parse_frame(frame, parsed), wire::ParseError::kNone);
                answers_[i].push_back(answer_of(parsed.headers, parsed.payload, parsed.payload_bytes));
            };
        }
    }

    void run() {
        for (size_t i = 0; i < packets_.size(); ++i) {
            const wire::ParsedFrame& p = packets_[i].parsed;
            const uint32_t from = p.flow.src == gids_[0] ? 0 : 1;
            if (!is_request(p.headers.bth.opcode)) {
                expected_[from].push_back(answer_of(p.headers, p.payload, p.payload_bytes));
                continue;
            }
            if (is_new(from, p)) run_steps_until_request();
            if (!next_answer_is_rnr(i)) run_steps_after_request();
            feed(1 - from, p);
        }
        run_steps_after_request(true);
    }

    void expect_same(bool some_were_lost) const {
        for (uint32_t host = 0; host < 2; ++host) {
            const auto ours = without_coalescing(answers_[host]);
            const auto theirs = without_coalescing(as_of_ibta(expected_[host], has_errors_));
            if (!some_were_lost) {
                EXPECT_EQ(ours, theirs);
                continue;
            }
            size_t at = 0;
            for (const Answer& answer : theirs) {
                while (at < ours.size() && !(ours[at] == answer) && !(as_repeated(ours[at]) == answer)) ++at;
                ASSERT_LT(at, ours.size()) << "no such answer: " << ::testing::PrintToString(answer);
                ++at;
            }
        }
    }
    size_t answers() const { return expected_[0].size() + expected_[1].size(); }
    uint32_t completions() const { return completions_; }

  private:
    const bool has_errors_;  // rc_nak: rxe's deviations from IBTA
    struct Packet {
        std::vector<uint8_t> bytes;
        wire::ParsedFrame parsed;
    };
    struct Memory {
        uint32_t host;
        Region region;
        std::vector<uint8_t> bytes;
        uint32_t key;  // in the capture
        uint64_t address;
    };
    struct Pair {
        uint32_t host;
        QueuePair* qp;
        uint32_t number;  // in the capture
    };

    // Returns true for the first packet of a new request. A repetition is no new step of the script.
    bool is_new(uint32_t from, const wire::ParsedFrame& p) {
        const wire::Op op = wire::op_of(p.headers.bth.opcode);
        const bool first = op != wire::Op::kSendMiddle && op != wire::Op::kSendLast && op != wire::Op::kSendLastImm &&
                           op != wire::Op::kWriteMiddle && op != wire::Op::kWriteLast && op != wire::Op::kWriteLastImm;
        if (!first) return false;
        auto& highest = highest_[{from, p.headers.bth.dest_qpn}];
        const transport::Psn psn(p.headers.bth.psn);
        if (highest && psn <= *highest) return false;
        highest = psn;
        if (op == wire::Op::kReadRequest && p.headers.reth.length > 0)
            highest = psn + (p.headers.reth.length - 1) / options_.front().mtu;
        return true;
    }

    bool next_answer_is_rnr(size_t i) const {
        for (; i < packets_.size(); ++i) {
            const wire::Headers& h = packets_[i].parsed.headers;
            if (!is_request(h.bth.opcode))
                return h.aeth.syndrome >> 5 == 1 || h.aeth.syndrome == wire::kSyndromeNakSequence;
        }
        return false;
    }

    static bool posts_request(const std::string& verb) {
        return verb == "send" || verb == "write" || verb == "read" || verb == "cas" || verb == "faa";
    }
    // Runs everything up to and including the next request of the script.
    void run_steps_until_request() {
        run_steps_after_request(true);
        if (next_ == steps_.size()) return;
        ASSERT_TRUE(posts_request(step().front()));
        take_output();
        // A request that the library refused never reached the wire.
        if (last_output_.front().rfind("err", 0) == 0) {
            ++next_;
            run_steps_until_request();
            return;
        }
        ++next_;
    }
    // Runs up to the next request, or, unless `polls`, up to the first completion that must be waited for.
    void run_steps_after_request(bool polls = false) {
        while (next_ < steps_.size() && !posts_request(step().front())) {
            if (step().front() == "poll" && !polls) return;
            take_output();
            execute(step());
            ++next_;
        }
    }
    std::vector<std::string> step() const {
        std::istringstream in(steps_[next_]);
        std::vector<std::string> words;
        for (std::string word; in >> word;) words.push_back(word);
        return words;
    }
    // Reads the answers to this step: lines up to the one that begins with ok or err.
    void take_output() {
        last_output_.clear();
        for (;;) {
            ASSERT_LT(next_output_, output_.size()) << steps_[next_];
            const std::string line = output_[next_output_++];
            last_output_.push_back(line);
            if (line.rfind("ok", 0) == 0 || line.rfind("err", 0) == 0) return;
        }
    }
    uint64_t value(const std::string& line, const std::string& name) const {
        const size_t at = line.find(name + "=");
        EXPECT_NE(at, std::string::npos) << line;
        return std::strtoull(line.c_str() + at + name.size() + 1, nullptr, 0);
    }
    static uint64_t number(const std::string& word) { return std::strtoull(word.c_str(), nullptr, 0); }

    void execute(const std::vector<std::string>& words) {
        const std::string& verb = words[0];
        if (verb == "mr") {
            memories_.emplace_back();
            Memory& m = memories_.back();
            m.host = words[1] == "d0" ? 0 : 1;
            m.bytes.assign(number(words[2]), 0);
            m.address = m.region.iova = value(last_output_[0], "addr");
            m.key = static_cast<uint32_t>(value(last_output_[0], "rkey"));
            m.region.host = m.bytes.data();
            m.region.length = m.bytes.size();
            m.region.access = kAllAccess;
            m.region.pd = hosts_[m.host].get();
            ASSERT_TRUE(hosts_[m.host]->memory.insert(m.region));
        } else if (verb == "qp") {
            QpOptions options;
            options.type = words[2] == "rc" ? IBV_QPT_RC : words[2] == "uc" ? IBV_QPT_UC : IBV_QPT_UD;
            const uint32_t host = words[1] == "d0" ? 0 : 1;
            options_.push_back(options);
            pairs_.push_back(
                {host, &hosts_[host]->create(options), static_cast<uint32_t>(value(last_output_[0], "qpn"))});
            if (options.type == IBV_QPT_UD) {
                options.qkey = 0x11111111;
                hosts_[host]->bring_up(*pairs_.back().qp, options, path(host), 0, 0, 1);
            }
        } else if (verb == "connect") {
            const size_t index = number(words[1].substr(1));
            QpOptions& options = options_[index];
            options.mtu = static_cast<uint32_t>(number(words[2]));
            options.psn = static_cast<uint32_t>(number(words[5]));
            if (std::find(words.begin(), words.end(), "minrnr=18") != words.end()) options.min_rnr_timer = 18;
            Pair& pair = pairs_[index];
            hosts_[pair.host]->bring_up(*pair.qp, options, path(pair.host), 0, static_cast<uint32_t>(number(words[4])),
                                        1);
        } else if (verb == "recv") {
            const Pair& pair = pairs_[number(words[1].substr(1))];
            const Memory& m = memories_[number(words[2].substr(1))];
            const uint64_t count = words.size() > 5 ? number(words[5]) : 1;
            for (uint64_t i = 0; i < count; ++i) {
                std::vector<ibv_sge> sges;
                const auto bytes = static_cast<uint32_t>(number(words[4]));
                if (bytes != 0) sges.push_back({m.address + number(words[3]), bytes, m.region.key});
                ASSERT_TRUE(hosts_[pair.host]->post_recv(*pair.qp, receives_++, sges));
            }
        } else if (verb == "u64") {
            Memory& m = memories_[number(words[1].substr(1))];
            if (words.size() > 3) {
                const uint64_t stored = number(words[3]);
                std::memcpy(m.bytes.data() + number(words[2]), &stored, 8);
            } else if (m.host == 1) {  // the requester's own memory is not part of this
                uint64_t found;
                std::memcpy(&found, m.bytes.data() + number(words[2]), 8);
                EXPECT_EQ(found, number(last_output_[0].substr(3))) << steps_[next_];
            }
        } else if (verb == "crc" && words[1] == "m1") {
            Memory& m = memories_[1];
            EXPECT_EQ(crc32(m.bytes.data() + number(words[2]), number(words[3])), number(last_output_[0].substr(3)));
        } else if (verb == "poll") {
            check_completions(pairs_[number(words[1].substr(1))]);
        }
    }

    // Receive completions only: the requester's half has no work requests here.
    void check_completions(const Pair& pair) {
        const auto wcs = hosts_[pair.host]->poll(*pair.qp->recv_cq);
        size_t next = 0;
        for (const std::string& line : last_output_) {
            if (line.rfind("wc", 0) != 0 || value(line, "id") < 0x8000) continue;
            ASSERT_LT(next, wcs.size()) << line;
            const ibv_wc& wc = wcs[next++];
            ++completions_;
            EXPECT_EQ(wc.wr_id, value(line, "id")) << line;
            // A receive that is too short fails with LOC_LEN_ERR as IBTA 10.8.5.1 demands; rxe calls it LOC_QP_OP_ERR.
            const auto status = static_cast<ibv_wc_status>(value(line, "status"));
            EXPECT_EQ(wc.status, status == IBV_WC_LOC_QP_OP_ERR ? IBV_WC_LOC_LEN_ERR : status) << line;
            if (wc.status != IBV_WC_SUCCESS) continue;
            EXPECT_EQ(wc.opcode, value(line, "op")) << line;
            EXPECT_EQ(wc.byte_len, value(line, "len")) << line;
            if (line.find("imm=") != std::string::npos) {
                EXPECT_EQ(ntohl(wc.imm_data), value(line, "imm")) << line;
            }
        }
        EXPECT_EQ(next, wcs.size());
    }

    Path path(uint32_t host) const {
        Path path;
        path.flow.src = gids_[host];
        path.flow.dst = gids_[1 - host];
        path.headers = wire::make_template(path.flow);
        return path;
    }

    uint32_t our_key(uint32_t host, uint32_t key) const {
        for (const Memory& m : memories_) {
            if (m.host == host && m.key == key) return m.region.key;
        }
        return 0xFFFFFF00;  // not assigned, as in the capture
    }

    void feed(uint32_t to, wire::ParsedFrame frame) {
        QueuePair* qp = nullptr;
        for (const Pair& pair : pairs_) {
            if (pair.host == to && pair.number == frame.headers.bth.dest_qpn) qp = pair.qp;
        }
        ASSERT_NE(qp, nullptr);
        wire::Headers& h = frame.headers;
        h.bth.dest_qpn = qp->qpn;
        h.reth.rkey = our_key(to, h.reth.rkey);
        h.atomic.rkey = our_key(to, h.atomic.rkey);
        h.invalidate_rkey = our_key(to, h.invalidate_rkey);
        now_ += 1000;
        hosts_[to]->engine.receive(frame, qp, 0, now_);
        while (hosts_[to]->engine.transmit(now_, 64) > 0) {
        }
    }

    std::vector<Packet> packets_;
    wire::Gid gids_[2];
    std::vector<std::string> steps_, output_, last_output_;
    size_t next_ = 0, next_output_ = 0;
    std::deque<Memory> memories_;
    std::vector<QpOptions> options_;
    std::vector<Pair> pairs_;
    uint64_t receives_ = 0x8000, now_ = 1000;
    std::map<std::pair<uint32_t, uint32_t>, std::optional<transport::Psn>> highest_;
    std::vector<Answer> answers_[2], expected_[2];
    uint32_t completions_ = 0;
    std::unique_ptr<Host> hosts_[2];
};

struct GoldenResponder : ::testing::TestWithParam<const char*> {};

TEST_P(GoldenResponder, answers_as_rxe_did) {
    const std::string name = GetParam();
    Replay replay(name);
    replay.run();
    replay.expect_same(name == "rc_loss");
    const bool rc = name.rfind("rc", 0) == 0;
    EXPECT_EQ(replay.answers() > 0, rc);
    EXPECT_EQ(replay.completions() > 0, name != "rc_loss");
}

INSTANTIATE_TEST_SUITE_P(Captures, GoldenResponder,
                         ::testing::Values("rc_ipv4_mtu1024", "rc_ipv4_mtu4096", "rc_ipv6_mtu1024", "rc_nak", "rc_rnr",
                                           "rc_loss", "uc_ipv4_mtu1024", "ud_ipv4"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace rove::test
