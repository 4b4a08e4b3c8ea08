// SPDX-License-Identifier: Apache-2.0
// The reaction point of DCQCN (Zhu et al., SIGCOMM 2015, section 3): the sending rate of a QP that receives CNPs. Units
// are nanoseconds, and bytes per second for rates. A QP has no limit until its first CNP.
//
// DESIGN NOTE The public HPCC simulator, on which ConWeave's is based and whose results later papers show, has another
// reaction point. DcqcnReaction::kHpcc models it for comparison with those papers:
// - A CNP only sets a flag. A clock that starts with the first CNP cuts the rate once in decrease_interval_ns if the
//   flag is set. Alpha grows or falls once in alpha_timer_ns, depending on a CNP in that interval.
// - The target stays unchanged if the rate has not grown since the last cut ("clamp off"). A flow that was cut ten
//   times in a row thus returns half way to the rate before the first cut with its first increase. With the paper's
//   rule it returns to the rate after the ninth cut.
// - Bytes are not counted: the hyper step follows the one additive step, driven by time alone. And a QP stays limited,
//   so that alpha does not restart at 1 when the QP is back at line rate.
// - A packet that departs late, behind others or a pause of PFC, is not compensated: the next one waits its full time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rove::transport {

enum class DcqcnReaction : uint8_t { kPaper, kHpcc };

struct DcqcnConfig {
    DcqcnReaction reaction = DcqcnReaction::kPaper;
    uint64_t line_rate_bytes_per_s = 0;          // the rate of a QP at its first CNP, and its limit; 0: the port's own
    uint64_t min_rate_bytes_per_s = 12'500'000;  // 100 Mb/s
    uint64_t cnp_interval_ns = 50'000;           // paper: one CNP per 50 us and flow
    uint64_t decrease_interval_ns = 4'000;       // kHpcc: at most one cut in this interval
    uint64_t alpha_timer_ns = 55'000;            // paper
    uint64_t rate_timer_ns = 55'000;             // paper's recommended T (section 5)
    uint64_t byte_counter = 10'000'000;          // paper: 10 MB
    uint64_t additive_bytes_per_s = 5'000'000;   // paper: 40 Mb/s
    uint64_t hyper_bytes_per_s = 50'000'000;     // 10 x additive
    uint32_t fast_recovery_steps = 5;            // paper: F
    // Counts a packet that arrived out of order as a CNP, like ConWeave's public simulator, whose NICs report it with a
    // flag in the (negative) acknowledgement. The sender sees a sequence NAK, or an ACK for a packet that is not the
    // oldest.
    bool disorder_is_cnp = false;
};

// Returns null for a usable configuration, or else the member that is wrong and its allowed values.
const char* invalid(const DcqcnConfig& config);

class Dcqcn {
  public:
    static constexpr uint64_t kUnknownPortRate = 12'500'000'000;  // 100 Gb/s

    bool limited() const { return limited_; }
    // Sets the rate of the port, which holds unless the configuration has another.
    void set_port_rate(uint64_t bytes_per_s) { port_rate_ = bytes_per_s; }

    // Handles a CNP: cuts the rate, or sets the flag (kHpcc).
    void on_cnp(const DcqcnConfig& config, uint64_t now_ns);
    // Accounts for `bytes` that depart now. Called only while limited().
    void on_sent(const DcqcnConfig& config, uint32_t bytes, uint64_t now_ns);
    // Returns the time at which the next packet may depart.
    uint64_t next_send_ns() const { return next_send_ns_; }
    uint64_t rate_bytes_per_s() const { return rate_; }

  private:
    uint64_t line_rate(const DcqcnConfig& config) const {
        return config.line_rate_bytes_per_s != 0 ? config.line_rate_bytes_per_s : port_rate_;
    }
    void cut(const DcqcnConfig& config, uint64_t now_ns);
    void increase(const DcqcnConfig& config);
    void catch_up(const DcqcnConfig& config, uint64_t now_ns);
    void catch_up_hpcc(const DcqcnConfig& config, uint64_t now_ns);

    bool limited_ = false;
    // KHpcc: a CNP arrived since alpha changed, since the last cut.
    bool cnp_since_alpha_ = false, cnp_since_cut_ = false;
    uint32_t alpha_ = 1u << 16;  // 16.16 fixed point: 1.0
    uint64_t rate_ = 0, target_ = 0;
    uint64_t port_rate_ = kUnknownPortRate;
    uint64_t next_send_ns_ = 0;
    uint64_t last_alpha_ns_ = 0, last_rate_ns_ = 0;
    uint64_t last_cut_ns_ = 0;  // kHpcc: the last tick before a CNP of the clock that cuts
    uint64_t bytes_ = 0;        // since the byte counter last expired
    uint32_t time_steps_ = 0, byte_steps_ = 0;
};

}  // namespace rove::transport
