// SPDX-License-Identifier: Apache-2.0
// DCQCN's reaction point (Zhu et al., SIGCOMM 2015, section 3): the sending rate of a QP that received CNPs.
// Units: nanoseconds; rates in bytes per second. Until the first CNP a QP is not limited at all.
//
// DESIGN NOTE
// HPCC's public simulator, which ConWeave's is made from and whose numbers later papers show, has another reaction
// point (DcqcnReaction::kHpcc, there to compare with those papers):
//   - A CNP is only noted. The rate is cut by a clock that begins with the first one, once in decrease_interval_ns;
//     alpha grows or falls once in alpha_timer_ns, by whether a CNP came in it.
//   - The target stays what it is if the rate has not grown since the last cut ("clamp off"). So a flow that was cut
//     ten times in a row is half way back to the rate of before the first cut with its first increase; by the paper it
//     goes back to where the ninth cut had left it.
//   - No bytes are counted: the hyper step comes after the one additive step, by time alone. And a QP stays limited, so
//     alpha is not 1 again when it comes back to line rate.
//   - A packet that is late, behind others or a pause of PFC, is not made up for: the next one waits its whole time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rove::transport {

enum class DcqcnReaction : uint8_t { kPaper, kHpcc };

struct DcqcnConfig {
    DcqcnReaction reaction = DcqcnReaction::kPaper;
    uint64_t line_rate_bytes_per_s = 12'500'000'000;  // where a limited QP starts and may return to: 100 Gb/s
    uint64_t min_rate_bytes_per_s = 12'500'000;       // 100 Mb/s
    uint64_t cnp_interval_ns = 50'000;                // paper: one CNP per 50 us and flow
    uint64_t decrease_interval_ns = 4'000;            // kHpcc: at most one cut in it
    uint64_t alpha_timer_ns = 55'000;                 // paper
    uint64_t rate_timer_ns = 55'000;                  // paper's recommended T (section 5)
    uint64_t byte_counter = 10'000'000;               // paper: 10 MB
    uint64_t additive_bytes_per_s = 5'000'000;        // paper: 40 Mb/s
    uint64_t hyper_bytes_per_s = 50'000'000;          // 10 x additive
    uint32_t fast_recovery_steps = 5;                 // paper: F
    // That a packet arrived out of order counts as a CNP: ConWeave's public simulator, whose NICs say so by a flag of
    // the (negative) acknowledgement. At the sender it is a sequence NAK, or an ACK of what is not the oldest packet.
    bool disorder_is_cnp = false;
};

// Null if usable; else the member that is not, and what it may be.
const char* invalid(const DcqcnConfig& config);

class Dcqcn {
  public:
    bool limited() const { return limited_; }

    // A CNP arrived: cuts the rate, or notes it (kHpcc).
    void on_cnp(const DcqcnConfig& config, uint64_t now_ns);
    // `bytes` go out now. Only called while limited().
    void on_sent(const DcqcnConfig& config, uint32_t bytes, uint64_t now_ns);
    // When the next packet may go out.
    uint64_t next_send_ns() const { return next_send_ns_; }
    uint64_t rate_bytes_per_s() const { return rate_; }

  private:
    void cut(const DcqcnConfig& config, uint64_t now_ns);
    void increase(const DcqcnConfig& config);
    void catch_up(const DcqcnConfig& config, uint64_t now_ns);
    void catch_up_hpcc(const DcqcnConfig& config, uint64_t now_ns);

    bool limited_ = false;
    bool cnp_since_alpha_ = false, cnp_since_cut_ = false;  // kHpcc
    uint32_t alpha_ = 1u << 16;                             // 16.16 fixed point: 1.0
    uint64_t rate_ = 0, target_ = 0;
    uint64_t next_send_ns_ = 0;
    uint64_t last_alpha_ns_ = 0, last_rate_ns_ = 0;
    uint64_t last_cut_ns_ = 0;  // kHpcc: of the clock that cuts, the last tick before a CNP
    uint64_t bytes_ = 0;        // since the byte counter's last expiry
    uint32_t time_steps_ = 0, byte_steps_ = 0;
};

}  // namespace rove::transport
